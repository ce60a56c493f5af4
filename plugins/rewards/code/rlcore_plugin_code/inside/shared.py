"""Containers that both the tests and the program hold: each has a number, and each side sees the changes of the other.

A message names them by reference, ``{"l": number}``, and has a table ``[number, kind, content]`` of those that the other side does not have
in this state. A list that is passed twice, or inside another one, therefore stays one list; a program may change it, keep it, or return it.
The tests give even numbers to every plain container that they pass. The program gives odd numbers to objects of the row's classes, which
the other side rebuilds from their attributes, and to containers that belong to its objects.
"""

import collections
import json
from collections.abc import Callable, Iterable
from enum import Enum
from typing import Any

from rlcore_plugin_code.inside.wire import decode, encode

__all__ = ["Shared"]

_Other = Callable[[Any], Any]
_LISTS = {kind.__name__: kind for kind in (list, set, bytearray, collections.deque)}
_TABLES = {kind.__name__: kind for kind in (dict, collections.OrderedDict, collections.Counter, collections.defaultdict)}
_MORE = (BaseException, Enum, int, float, str, bytes, tuple, list, set, dict)
_ATOMS = frozenset({int, float, str, bytes, tuple})
_PLAIN = frozenset({*_LISTS.values(), *_TABLES.values()})


class Shared:
    """The shared containers of one side. ``first``: its first number; it uses every second number. ``write``, ``read``: functions that
    encode and decode values that are not plain; ``classes``: the classes of the row by name; ``plain``: whether this side gives numbers to
    plain containers."""

    def __init__(self, first: int, write: _Other, read: _Other, classes: dict[str, type], *, plain: bool) -> None:
        self._next, self._write, self._read, self._classes, self._all = first, write, read, classes, plain
        self.fields: dict[str, set[str]] | None = None
        """Attributes that the code of a class of the row gives to its objects, by the name of the class; None if they are not checked."""
        self.objects: dict[int, Any] = {}
        self._numbers: dict[int, int] = {}
        self._last: dict[int, Any] = {}
        self._met: dict[int, None] = {}

    def tree(self, value: Any) -> Any:
        """Return the value in the form of messages. RecursionError or CannotTravel if it has none."""
        return encode(value, self._write, share=self._reference)

    def value(self, tree: Any) -> Any:
        """Return the value that was written."""
        return decode(tree, self._other)

    def _other(self, tree: dict[str, Any]) -> Any:
        if set(tree) != {"l"}:
            return self._read(tree)
        self._met.setdefault(tree["l"])
        return self.objects[tree["l"]]

    def _reference(self, value: Any, kind: type) -> dict[str, Any] | None:
        if kind in _ATOMS:
            return None
        number = self._numbers.get(id(value))
        if number is None:
            if not (self._all and kind in _PLAIN) and not self._is_of_row(kind):
                return None
            number, self._next = self._next, self._next + 2
            self._hold(number, value)
        self._met.setdefault(number)
        return {"l": number}

    def _is_of_row(self, kind: type) -> bool:
        """Return whether it is a class of the row whose objects consist only of their attributes."""
        return self._classes.get(kind.__name__) is kind and bool(kind.__dictoffset__) and not issubclass(kind, _MORE)

    def give_number(self, value: Any) -> int | None:
        """Share a plain container of which this side would otherwise send only the content; return its number, None for any other value."""
        if type(value) in _PLAIN and id(value) not in self._numbers:
            self._next += 2
            self._hold(self._next - 2, value)
        return self._numbers.get(id(value))

    def _hold(self, number: int, value: Any) -> None:
        self.objects[number] = value  # also keeps the value alive, so that its id stays unique
        self._numbers[id(value)] = number

    def reached(self) -> list[int]:
        """Return the numbers that were named since the last ``changes`` or ``begin``."""
        return list(self._met)

    def begin(self) -> None:
        """Begin a message: earlier references do not belong to it."""
        self._met.clear()

    def changes(self, also: Iterable[int] = ()) -> list[Any]:
        """Return the table of the containers named since the last time, and of ``also``, whose content the other side does not have."""
        waiting = [*dict.fromkeys([*self._met, *also])]
        seen, table = set(waiting), []
        while waiting:
            number = waiting.pop(0)
            self._met.clear()
            kind, content = self._content(self.objects[number])
            waiting += [inner for inner in self._met if inner not in seen]
            seen.update(self._met)
            if self._last.get(number) != content:
                self._last[number] = content
                table.append([number, kind, content])
        self._met.clear()
        return table

    def read(self, table: list[Any]) -> None:
        """Apply the changes in the table to the containers of this side."""
        for number, kind, content in table:
            if number not in self.objects:
                self._hold(number, self._made(kind, content))
            self._last[number] = content
        for number, _, content in sorted(table, key=lambda entry: not entry[1].startswith("class ")):  # a set hashes its items
            self._fill(self.objects[number], content)
            self._met.setdefault(number)

    def _content(self, value: Any) -> tuple[str, Any]:
        kind, name = type(value), type(value).__name__
        if kind not in _PLAIN:
            return f"class {name}", [[key, self.tree(item)] for key, item in vars(value).items()]
        if kind is bytearray:
            return name, bytes(value).hex()
        if kind is set:
            return name, sorted((self.tree(item) for item in value), key=json.dumps)
        if kind is collections.deque:
            return name, [value.maxlen, [self.tree(item) for item in value]]
        if name not in _TABLES:
            return name, [self.tree(item) for item in value]
        pairs = [[self.tree(key), self.tree(item)] for key, item in value.items()]
        return name, [self.tree(value.default_factory), pairs] if kind is collections.defaultdict else pairs

    def _made(self, kind: str, content: Any) -> Any:
        first, _, name = kind.partition(" ")
        if name:
            row_class = self._classes[name]
            return row_class.__new__(row_class)
        if first == "deque":
            return collections.deque(maxlen=content[0])
        return collections.defaultdict(self.value(content[0])) if first == "defaultdict" else (_LISTS | _TABLES)[first]()

    def _hides(self, kind: type, name: str) -> bool:
        known = set().union(*(self.fields.get(base.__name__, set()) for base in kind.__mro__)) if self.fields is not None else {name}
        return hasattr(kind, name) and name not in known

    def _fill(self, value: Any, content: Any) -> None:
        kind = type(value)
        if kind not in _PLAIN:
            if hidden := [key for key, _ in content if self._hides(kind, key)]:
                raise TypeError(f"{hidden[0]} of an object hides an attribute of its class")  # the class is the row's, and judges
            vars(value).clear()
            vars(value).update({key: self.value(item) for key, item in content})
        elif kind is bytearray:
            value[:] = bytes.fromhex(content)
        elif kind is list:
            value[:] = [self.value(item) for item in content]
        elif kind in _LISTS.values():
            items = [self.value(item) for item in (content[1] if kind is collections.deque else content)]
            value.clear()
            (value.extend if kind is collections.deque else value.update)(items)
        else:
            pairs = [(self.value(key), self.value(item)) for key, item in (content[1] if kind is collections.defaultdict else content)]
            value.clear()
            dict.update(value, pairs)
