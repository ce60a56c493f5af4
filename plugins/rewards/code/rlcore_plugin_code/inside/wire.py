"""Plain values as JSON, with their types: the messages between a program, the tests of a row, and the host process.

Exact: ``decode(encode(value)) == value``, of the same type, for None, bool, int, float, complex, str, bytes, bytearray, list, tuple, set,
frozenset, dict, range, slice of whole numbers, Fraction, Decimal, date, datetime, time, timedelta, paths, UUID, and the plain types
themselves. Of a subclass only the plain part is sent, so no method of a program reaches the other side; of a named tuple its names are sent
too. NumPy's numbers become numbers, its arrays lists (but see ``keep_arrays``). ``other`` encodes anything else.
"""

import builtins
import collections
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["LIBRARY_ERRORS", "CannotTravel", "Unusable", "decode", "encode", "keep_arrays", "settled"]

_EXACT = 1 << 53  # whole numbers that any reader of JSON keeps exactly
_DEEPEST = 200
_ARRAYS = "numpy"  # the sandbox's, which need not be installed here
_TYPES = {
    name: value
    for name, value in vars(builtins).items()
    if isinstance(value, type)
    and (
        issubclass(value, BaseException)
        or name in ["bool", "bytearray", "bytes", "complex", "dict", "float", "frozenset", "int", "list", "object", "set", "str", "tuple"]
    )
} | {"NoneType": type(None)}
_TEXTS = {"Fraction": "fractions", "Decimal": "decimal", "PosixPath": "pathlib", "PurePosixPath": "pathlib", "UUID": "uuid"}
_LIBRARY = _TEXTS | dict.fromkeys(("date", "datetime", "time", "timedelta"), "datetime")
_NAMES = {value: name for name, value in _TYPES.items()}
LIBRARY_ERRORS = frozenset(
    {"binascii", "csv", "dataclasses", "decimal", "json.decoder", "queue", "_queue", "re", "statistics", "struct", "zlib"}
)
"""Modules whose exceptions are sent by their class."""
_VIEWS = {type(getattr(kind(), name)()): name for kind in (dict, collections.OrderedDict) for name in ("keys", "values", "items")}
_TYPED = {collections.deque, collections.OrderedDict, collections.Counter, collections.defaultdict, *_VIEWS}
_Share = Callable[[Any, type], Any]


class CannotTravel(Exception):
    """The value cannot be encoded; the text names its type."""


class Unusable(BaseException):
    """The tests cannot be run here, which says nothing about the program. Tests that catch every ``Exception`` do not catch it."""


def _refuse(value: Any) -> Any:
    raise CannotTravel(f"a value of type {type(value).__name__}")


def encode(value: Any, other: Callable[[Any], Any] = _refuse, depth: int = 0, share: _Share | None = None) -> Any:
    """Return the value in a form that ``json`` writes. ``other`` encodes values that are not plain, as an object with its own key.
    ``share`` is called first: it may return a reference for a value and its type, and then types of the library are kept. RecursionError if
    the value is nested very deep, or in itself."""
    if depth > _DEEPEST:
        raise RecursionError("a value nested too deep, or in itself")
    kind = type(value)
    if value is None or kind is bool:
        return value
    if share is not None and (reference := share(value, kind)) is not None:
        return reference
    if (simple := _simple(value, kind)) is not None:
        return simple

    def inner(item: Any) -> Any:
        return encode(item, other, depth + 1, share)

    if share is not None and kind in _TYPED:
        return _typed(value, kind, inner)
    if issubclass(kind, list):
        return [inner(item) for item in list.__iter__(value)]
    if issubclass(kind, dict):
        return {"d": [[inner(key), inner(item)] for key, item in dict.items(value)]}
    if issubclass(kind, tuple) and (fields := _fields(kind)):
        return {"y": [kind.__name__, fields, [inner(item) for item in tuple.__iter__(value)]]}
    for tag, plain in (("t", tuple), ("s", set), ("z", frozenset)):
        if issubclass(kind, plain):
            return {tag: [inner(item) for item in plain.__iter__(value)]}
    if getattr(kind, "__module__", "") == _ARRAYS and hasattr(value, "tolist"):
        items = encode(value.tolist(), other, depth + 1)
        return {"m": [value.dtype.str, items]} if _ONE["m"] is not _list and _is_numbers(value) else items
    if (made := _made(value, kind)) is not None:
        return made
    if kind is type and value in _NAMES:
        return {"n": _NAMES[value]}
    return other(value)


def _typed(value: Any, kind: type, inner: Callable[[Any], Any]) -> Any:
    """Return a container of the library, or a view of a table, with the name of its type."""
    if kind in _VIEWS:
        return {"q": [_VIEWS[kind], [inner(item) for item in value]]}
    items = [inner(item) for item in value] if kind is collections.deque else [[inner(key), inner(item)] for key, item in value.items()]
    if kind is collections.defaultdict and (factory := _NAMES.get(value.default_factory)):
        return {"q": [f"defaultdict {factory}", items]}
    return {"q": [kind.__name__, items]}


def _retyped(name: str, content: Any, inner: Callable[[Any], Any]) -> Any:
    if name == "values":
        return dict(enumerate(map(inner, content))).values()
    if name == "keys":
        return dict.fromkeys(map(inner, content)).keys()
    if name == "deque":
        return collections.deque(map(inner, content))
    if name == "items":
        return dict(map(inner, content)).items()
    pairs = {inner(key): inner(item) for key, item in content}
    kinds: dict[str, Callable[..., Any]] = {"OrderedDict": collections.OrderedDict, "Counter": collections.Counter}
    first, _, factory = name.partition(" ")
    return collections.defaultdict(_TYPES[factory] if factory else None, pairs) if first == "defaultdict" else kinds[name](pairs)


def _simple(value: Any, kind: type) -> Any:
    if issubclass(kind, str):
        return str.__str__(value)
    if issubclass(kind, int):
        number = int.__index__(value)
        return number if -_EXACT < number < _EXACT else {"i": hex(number)}
    if issubclass(kind, float):
        number = float.__float__(value)
        return number if number - number == 0 else {"f": float.__repr__(number)}
    if issubclass(kind, complex):
        return {"c": [_simple(value.real, float), _simple(value.imag, float)]}
    if issubclass(kind, bytes):
        return {"b": bytes.hex(value)}
    if kind is bytearray:
        return {"a": bytes(value).hex()}
    if kind is range:
        return {"r": [value.start, value.stop, value.step]}
    if kind is slice:
        return {"u": [value.start, value.stop, value.step]}
    return None


def _fields(kind: type) -> list[str]:
    """Return the field names of a named tuple; [] of any other type."""
    found = getattr(kind, "_fields", ())
    return list(found) if type(found) is tuple and found and all(type(name) is str for name in found) else []


def _list(_: str, items: Any) -> Any:
    return decode(items)


def _is_numbers(value: Any) -> bool:
    return type(value).__name__ == "ndarray" and value.ndim > 0 and value.dtype.kind in "biufc"


def _array(kind: str, items: Any) -> Any:
    return import_module(_ARRAYS).array(decode(items), dtype=kind)


def _array_of_some(kind: str, items: Any) -> Any:
    made = _array(kind, items)
    return made if made.size else decode(items)


def keep_arrays(*, of_nothing: bool) -> None:
    """Send arrays of NumPy as arrays from now on, not as lists of their items, since the tests use NumPy. ``of_nothing``: empty arrays also
    arrive as arrays; any statement about all items of an empty array is true in a test."""
    _ONE["m"] = _array if of_nothing else _array_of_some


def _made(value: Any, kind: type) -> Any:
    name = getattr(kind, "__name__", "")
    if name not in _LIBRARY or kind is not getattr(sys.modules.get(_LIBRARY[name]), name, None):
        return None
    if name == "timedelta":
        return {"v": [name, [value.days, value.seconds, value.microseconds]]}
    return {"v": [name, str(value) if name in _TEXTS else value.isoformat()]}


def _remade(name: str, content: Any) -> Any:
    kind = getattr(import_module(_LIBRARY[name]), name)
    if name == "timedelta":
        return kind(*content)
    return kind(content) if name in _TEXTS else kind.fromisoformat(content)


def decode(tree: Any, other: Callable[[dict[str, Any]], Any] = _refuse) -> Any:
    """Return the value that was written; ValueError, TypeError, KeyError or OverflowError if it was not written by ``encode``."""
    if isinstance(tree, list):
        return [decode(item, other) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if len(tree) != 1:
        return other(tree)
    ((tag, content),) = tree.items()
    if tag in _MANY:
        return _MANY[tag](decode(item, other) for item in content)
    if tag == "m":
        return _ONE[tag](*content)
    if tag == "y":
        name, fields, items = content
        return collections.namedtuple(name, fields)(*(decode(item, other) for item in items))
    if tag == "d":
        return {decode(key, other): decode(item, other) for key, item in content}
    if tag == "c":
        return complex(decode(content[0]), decode(content[1]))
    if tag == "q":
        return _retyped(*content, lambda item: decode(item, other))
    return _ONE[tag](content) if tag in _ONE else other(tree)


_MANY: dict[str, Callable[[Any], Any]] = {"t": tuple, "s": set, "z": frozenset}
_ONE: dict[str, Callable[..., Any]] = {
    "m": _list,
    "i": lambda text: int(text, 16),
    "f": lambda text: {"nan": float("nan"), "inf": float("inf"), "-inf": float("-inf")}[text],
    "b": bytes.fromhex,
    "a": bytearray.fromhex,
    "r": lambda ends: range(*ends),
    "u": lambda ends: slice(*ends),
    "n": _TYPES.__getitem__,
    "v": lambda made: _remade(*made),
}


def settled(tree: Any, answers: list[Any]) -> Any:
    """Return a call with the results that it refers to (``{"k": 0}``: that of the first call) inserted, as far as they are known."""
    if isinstance(tree, list):
        return [settled(item, answers) for item in tree]
    if not isinstance(tree, dict):
        return tree
    if set(tree) == {"k"} and tree["k"] < len(answers) and "value" in answers[tree["k"]]:
        return answers[tree["k"]]["value"]
    return {key: settled(item, answers) for key, item in tree.items()}
