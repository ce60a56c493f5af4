"""Runs in the sandbox with a program: executes the calls and writes the result of each. It contains only inputs and no expected values, so
a program that takes over this process can only write its own answers.

Files of the working folder: ``names.py``, run first in the same module, whose names do not count as the program's; ``before.py``, a
beginning of the program; ``solution.py``; ``imports.py``, if the tests use NumPy; ``calls.json``, a list of calls (``stand_ins`` describes
their format); ``brought.json``, the classes of ``before.py`` that are for the tests. Standard output carries the answers, one line of JSON
a call; output of the program goes to standard error.
"""

import builtins
import copy
import io
import json
import math
import operator
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from importlib import import_module
from itertools import islice
from types import MethodType, ModuleType
from typing import Any

from rlcore_plugin_code.inside.shared import Shared
from rlcore_plugin_code.inside.wire import LIBRARY_ERRORS, decode, encode, keep_arrays

__all__ = ["serve"]

_NAME = "solution"
_LONGEST = 500
_MOST_KEPT = 1000


def _size(value: Any) -> int:
    """Return the number of items of a container, or of attributes of an object of the row's classes."""
    return len(value) if hasattr(type(value), "__len__") else len(vars(value))


class _Program:
    """The module of the program, and the objects to which the other side refers by number."""

    def __init__(self) -> None:
        self.module = ModuleType(_NAME)
        self.module.__dict__.update(__builtins__=__builtins__, __file__="solution.py")
        sys.modules[_NAME] = self.module
        self.given: dict[str, Any] = {}
        self.stub: dict[str, Any] = {}
        self.results: list[Any] = []
        self.held: list[Any] = []
        self.numbers: dict[int, int] = {}
        self.classes: dict[str, type] = {}
        self.shared = Shared(1, self.hold, self.resolve, self.classes, plain=False)
        self._kept: dict[int, None] = {}

    def load(self, path: str) -> None:
        with open(path, "rb") as file:  # noqa: PTH123
            exec(compile(file.read(), path, "exec", dont_inherit=True), self.module.__dict__)

    def load_all(self) -> None:
        """Run the files in order, and record the classes of the row, which the program may have replaced by its own."""
        for path in ("names.py", "before.py", "solution.py"):
            if os.path.exists(path):  # noqa: PTH110
                self.load(path)
            if path == "names.py":
                self.given = dict(self.module.__dict__)
            elif path == "before.py":
                self.stub = dict(self.module.__dict__)
        for name in _read("brought.json") if os.path.exists("brought.json") else ():  # noqa: PTH110
            if isinstance(self.module.__dict__.get(name), type):
                self.classes[name] = self.module.__dict__[name]

    def resolve(self, tree: dict[str, Any]) -> Any:
        """Return the object of a reference: ``g`` a name of the program, ``k`` the result of an earlier call, ``o`` an object by its
        number, ``x`` an exception of Python, ``w`` a name of the library, ``j`` a member of an Enum of the prompt."""
        ((tag, content),) = tree.items()
        if tag == "g":
            return self.named(content)
        if tag == "j":
            return getattr(self.stub[content[0]] if content[0] not in self.classes else self.classes[content[0]], content[1])
        if tag == "w":
            return getattr(import_module(content[0]), content[1])
        if tag == "x":
            return getattr(builtins, content[0])(*(self.shared.value(item) for item in content[1]))
        return self.results[content] if tag == "k" else self.held[content]

    def named(self, name: str) -> Any:
        names = self.module.__dict__
        own = name in names and not (name in self.given and names[name] is self.given[name])
        solution = names.get("Solution")
        if hasattr(solution, name) and not (own and names[name] is not self.stub.get(name)):
            return getattr(solution(), name)
        if own:
            return names[name]
        raise NameError(f"the program does not define {name}")

    def hold(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Enum) and self.classes.get(type(value).__name__) is type(value):
            return {"j": [type(value).__name__, value.name]}
        held = self.numbered(value)
        return held | {"error": _error(self, value)} if isinstance(value, BaseException) else held

    def numbered(self, value: Any) -> dict[str, Any]:
        if id(value) not in self.numbers:
            self.numbers[id(value)] = len(self.held)
            self.held.append(value)
        held = {"o": self.numbers[id(value)]}
        return held | ({"raises": _kind(value)} if isinstance(value, type) and issubclass(value, BaseException) else {})

    def does(self, call: dict[str, Any]) -> Any:
        """Return the result of a call."""
        target = decode(call["of"], self.resolve)
        if call["do"] == "name":
            return target
        if call["do"] == "get":
            return self._part(getattr(target, call["name"]))
        arguments = [self.shared.value(item) for item in call["args"]]
        keywords = {key: self.shared.value(item) for key, item in call.get("keywords", {}).items()}
        if call["do"] == "own":
            result = _OWN[call["name"]](target, *arguments)
            return self._part(result) if call["name"] == "item" else result
        result = self._called(target, arguments, keywords)
        return self._part(result) if type(target) is MethodType and "shared" in call else result

    def _part(self, value: Any) -> Any:
        """Return the value, after sharing it: a part of an object may be changed through the object and through its own name."""
        if len(self._kept) < _MOST_KEPT and (number := self.shared.give_number(value)) is not None and _size(value) <= _MOST_KEPT:
            self._kept[number] = None
        return value

    def _called(self, target: Any, arguments: list[Any], keywords: dict[str, Any]) -> Any:
        counts = [(number, sys.getrefcount(self.shared.objects[number])) for number in self.shared.reached()]
        try:
            return target(*arguments, **keywords)
        finally:
            kept = (number for number, count in counts if sys.getrefcount(self.shared.objects[number]) > count)
            self._kept.update(dict.fromkeys(islice(kept, _MOST_KEPT - len(self._kept))))

    def written(self, result: Any, call: dict[str, Any]) -> Any:
        if call["do"] == "name" and isinstance(result, type) and not issubclass(result, BaseException):
            return self.hold(result)  # Python's own, too: the tests call the program's class, not their own
        if call.get("made") and _has_methods(type(result)):
            return self.hold(result)
        return self.shared.tree(result) if "shared" in call else encode(result, self.hold)

    def after(self) -> dict[str, Any]:
        """Return the changes to containers that the tests hold, and which of them the program has kept."""
        table = self.shared.changes(self._kept)
        return ({"shared": table} if table else {}) | ({"kept": list(self._kept)} if self._kept else {})


def _wait_for(*awaitables: Any) -> Any:
    """Return the result of one awaitable, or the list of results of several, which run concurrently."""
    asyncio = import_module("asyncio")  # few programs need it, and it takes longer to import than most of them run
    if not _loops:
        _loops.append(asyncio.new_event_loop())

    async def waited() -> Any:
        return list(await asyncio.gather(*awaitables)) if len(awaitables) > 1 else await awaitables[0]

    return _loops[0].run_until_complete(waited())


_loops: list[Any] = []  # one for all calls, since locks and queues of a program belong to the loop of their first use


_OWN: dict[str, Callable[..., Any]] = {
    "bool": bool,
    "len": len,
    "list": lambda one, start, size: _items(one, start, size),
    "next": next,
    "reversed": lambda one: list(reversed(one)),
    "str": str,
    "repr": repr,
    "format": format,
    "hash": hash,
    "int": int,
    "float": float,
    "complex": complex,
    "bytes": bytes,
    "index": operator.index,
    "round": round,
    "trunc": math.trunc,
    "floor": math.floor,
    "ceil": math.ceil,
    "abs": abs,
    "neg": operator.neg,
    "pos": operator.pos,
    "invert": operator.invert,
    "class": type,
    "has": hasattr,
    "is": isinstance,
    "dict": vars,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "kind": lambda one, two: isinstance(two, one),
    "subclass": lambda one, two: issubclass(two, one),
    "subclass of": issubclass,
    "enter": lambda one: one.__enter__(),
    "exit": lambda one: one.__exit__(None, None, None),
    "await": _wait_for,
    "enter later": lambda one: _wait_for(one.__aenter__()),
    "exit later": lambda one: _wait_for(one.__aexit__(None, None, None)),
    "next later": lambda one: _wait_for(one.__anext__()),
    "iterate later": lambda one: one.__aiter__(),
    "contains": lambda one, item: item in one,
    "at_most": lambda one, two: bool(one <= two),
    "at_least": lambda one, two: bool(one >= two),
    "set": setattr,
    "unset": delattr,
    "item": lambda one, key: one[key],
    "put": lambda one, key, value: one.__setitem__(key, value),
    "delete": operator.delitem,
    "same": lambda one, two: bool(one == two),
    "differs": lambda one, two: bool(one != two),
    "less": lambda one, two: bool(one < two),
    "more": lambda one, two: bool(one > two),
    "divmod": divmod,
    "rdivmod": lambda one, two: divmod(two, one),
}


def _either_way(name: str, function: Callable[[Any, Any], Any]) -> None:
    _OWN[name] = function
    _OWN[f"r{name}"] = lambda one, two: function(two, one)
    _OWN[f"i{name}"] = getattr(operator, f"i{name.strip('_')}")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor"):
    _either_way(_name, getattr(operator, f"__{_name}__"))


def _has_methods(kind: type) -> bool:
    """Return whether the program has written methods of the class, which would be lost in its plain part."""
    return any(getattr(getattr(value, "__code__", None), "co_filename", "") == "solution.py" for value in vars(kind).values())


def _items(one: Any, start: int, size: int) -> list[Any]:
    """Return so many items from ``start`` on; of an iterator, which reading consumes, the next ones."""
    source = iter(one)
    start = 0 if source is one else start
    return list(islice(source, start, start + size))


def _kind(kind: type) -> list[Any]:
    """Return [names of the program's own classes, the most derived first; the class of Python that they are derived from]."""
    names = []
    for base in kind.__mro__:
        if base.__module__ == "builtins":
            return [names, base.__name__]
        if base.__module__ in LIBRARY_ERRORS:
            return [names, f"{base.__module__}:{base.__name__}"]
        names.append(base.__name__)
    return [names, "Exception"]


def _error(program: _Program, error: BaseException) -> list[Any]:
    """Return [class of Python, text, names of the program's own classes, arguments, attributes]."""
    names, plain = _kind(type(error))
    text = str(error)[:_LONGEST]
    try:
        arguments = [encode(item, program.numbered) for item in error.args]
        attributes = [[name, encode(item, program.numbered)] for name, item in vars(error).items() if not name.startswith("_")]
        if len(json.dumps([arguments, attributes])) <= _LONGEST:
            return [plain, text, names, arguments, attributes]
    except BaseException:
        pass
    return [plain, text, names, [text], []]


@contextmanager
def _surroundings(call: dict[str, Any], heard: dict[str, Any]) -> Iterator[None]:
    """Apply the tests' replacements of standard input and output during one call; ``heard`` receives the output and the number of lines
    read."""
    before = builtins.input, sys.stdin, sys.stdout
    out, given = io.StringIO(), call.get("typed", [])
    stdin, lines, taken = io.StringIO("".join(f"{line}\n" for line in given)), iter(given), []

    def typed(prompt: object = "") -> str:
        if not call["silent"]:
            print(prompt, end="")
        for line in lines:
            taken.append(line)
            return str(line)
        raise EOFError("the tests have no more input")

    try:
        if "typed" in call:
            builtins.input, sys.stdin = typed, stdin
        if "heard" in call:
            sys.stdout = out
        yield
    finally:
        heard |= {"printed": out.getvalue()} if out.getvalue() else {}
        if "typed" in call:
            heard["taken"] = len(taken) or len(given) - stdin.read().count("\n")
        builtins.input, sys.stdin, sys.stdout = before


def _answer(program: _Program, call: dict[str, Any]) -> dict[str, Any]:
    heard: dict[str, Any] = {}
    try:
        program.shared.begin()
        program.shared.read(call.get("shared", []))
        with _surroundings(call, heard):
            result = program.does(call)
        program.results.append(result)
        answer = {"value": program.written(result, call)}
    except BaseException as error:
        if len(program.results) <= call["number"]:
            program.results.append(None)
        answer = {"raised": [*_error(program, error), program.numbered(error)["o"]]}
    return answer | heard | program.after()


def _written(program: _Program, call: dict[str, Any]) -> str:
    try:
        return json.dumps(_answer(program, call))
    except BaseException as error:  # an object that the program put into a container of the tests
        return json.dumps({"raised": _error(program, error)})


def _read(path: str) -> Any:
    with open(path, encoding="ascii") as file:  # noqa: PTH123
        return json.load(file)


def serve() -> None:
    """Load the program, answer every call, and exit. An error during loading ends it as it would end ``python solution.py``."""
    with os.fdopen(os.dup(1), "w", encoding="ascii") as channel:
        os.dup2(2, 1)
        if os.path.exists("imports.py"):  # noqa: PTH110
            keep_arrays(of_nothing=True)
        program = _Program()
        program.load_all()
        for number, call in enumerate(_read("calls.json")):
            channel.write(_written(program, {**call, "number": number}) + "\n")
            channel.flush()
    os._exit(0)
