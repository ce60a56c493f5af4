"""Stand-ins that tests use for a program that runs elsewhere: every use is a call that is recorded and answered in the next round.

A call is ``{"do": …, "of": a reference, …}``: ``name`` (a name of the program), ``get`` (an attribute), ``call`` (``args``, ``keywords``;
``made``: the result is an object, even if its class is a list or a number), ``own`` (an operation of Python). References: ``{"g": name}``,
``{"k": the number of an earlier call}``, ``{"o": an object by its number}``, ``{"l": a container that both sides hold}`` (``shared``),
``{"x": an exception of Python}``, ``{"w": a name of the library}``, ``{"j": a member of an Enum of the prompt}``.

``Unknown`` is the result of a call that has no answer yet. It agrees with everything, so that tests continue and one round finds as many
calls as possible. A run with an ``Unknown`` gives no verdict. ``Held`` is an object of the program that cannot be sent.
"""

import builtins
import sys
import types
from collections.abc import Callable, Iterator
from enum import Enum
from importlib import import_module
from typing import Any

from rlcore_plugin_code.inside.shared import Shared
from rlcore_plugin_code.inside.surroundings import Surroundings
from rlcore_plugin_code.inside.wire import LIBRARY_ERRORS, CannotTravel, Unusable, decode, settled

__all__ = [
    "Enough",
    "Held",
    "Questions",
    "Stopped",
    "Unknown",
    "attribute_of",
    "has_attribute",
    "is_instance",
    "is_subclass",
    "next_of",
    "type_of",
]

_MOST_GUESSES = 5000  # calls of a round that have no answer yet
_FIRST_ITEMS, _MORE_ITEMS = 50, 1000  # of an object of the program, in one call
_MOST_TRUTHS = 100_000  # a loop may test the truth of an unknown value for ever


class Enough(BaseException):
    """This round has guessed enough; the next one has more answers."""


class Stopped(Exception):
    """The program raised StopIteration or the like. Unchanged, it would end an iteration of the tests, and skip their assertions."""


_ENDS_ITERATION = (StopIteration, StopAsyncIteration, GeneratorExit)


class Questions:
    """The calls of this run, in order, and the answers of earlier rounds (``asked``: [call, answer] pairs, in order).

    ``around``: the surroundings of the calls in the tests; ``brought``: objects of the row itself, by name; ``classes``: names of the
    program whose objects the tests create.
    """

    def __init__(self, asked: list[Any], around: Surroundings) -> None:
        self._answers = [answer for _, answer in asked]
        self._asked = [settled(call, self._answers) for call, _ in asked]
        self._around = around
        self._held: dict[int, Held] = {}
        self._errors: dict[int, BaseException] = {}
        self._kinds: dict[tuple[type, str], type] = {}
        self._numbers: dict[type, int] = {}
        self._kept: list[int] = []
        self.brought: dict[str, Any] = {}
        self.brought_classes: dict[str, type] = {}
        self.classes: set[str] = set()
        self.shared = Shared(0, self._reference, self._object, self.brought_classes, plain=True)
        self.delivered: Callable[[Any], Any] = lambda value: value
        """The function that is applied to each value of the program."""
        self.calls: list[Any] = []
        self.doubt = False
        self.known = 0
        self.unknown = 0
        self.uses = 0

    def ask(self, do: str, of: dict[str, Any], arguments: tuple[Any, ...] = (), keywords: dict[str, Any] | None = None, **more: Any) -> Any:
        """Return the result of the call: its value, or an ``Unknown``; or raise the exception that it raised."""
        self.uses += do != "name"
        self.doubt = False
        call = self._call(do, of, arguments, keywords) | more
        number = len(self.calls)
        self.calls.append(call)
        if self.unknown or number >= len(self._asked) or self._asked[number] != call:
            self.unknown += 1
            if self.unknown > _MOST_GUESSES:
                raise Enough
            return Unknown(self, number)
        self.known += 1
        return self._given(self._answers[number])

    def _call(self, do: str, of: dict[str, Any], arguments: tuple[Any, ...], keywords: dict[str, Any] | None) -> dict[str, Any]:
        call: dict[str, Any] = {"do": do, "of": of, **self._around.before()}
        self.shared.begin()
        try:
            call["args"] = [self.shared.tree(item) for item in arguments]
            if keywords is not None:
                call["keywords"] = {key: self.shared.tree(item) for key, item in keywords.items()}
            call["shared"] = self.shared.changes(self._kept)
        except CannotTravel as problem:
            if self.unknown:
                raise  # of a guess; the next round has more answers
            raise Unusable(f"the tests pass {problem} to the program, which cannot be sent there") from None
        return call

    def _given(self, answer: dict[str, Any]) -> Any:
        self.shared.read(answer.get("shared", []))
        self._kept = answer.get("kept", self._kept)
        self._around.after(answer)
        if "raised" in answer:
            raise self._raised(*answer["raised"])
        return self.delivered(self.shared.value(answer["value"]))

    def _object(self, tree: dict[str, Any]) -> Any:
        if "j" in tree:
            return getattr(self.brought_classes[tree["j"][0]], tree["j"][1])
        number = tree["o"]
        if "raises" in tree:
            kind = self._kind(*tree["raises"])
            self._numbers[kind] = number
            return kind
        if "error" in tree:
            return self._raised(*tree["error"], number)
        return self._held.setdefault(number, Held(self, number))

    def _reference(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Held):
            return {"o": value._number}
        if isinstance(value, Unknown) and value._number is not None:
            return {"k": value._number}
        if isinstance(value, BaseException):
            return self._error(value)
        if isinstance(value, Enum) and self.brought.get(type(value).__name__) is type(value):
            return {"j": [type(value).__name__, value.name]}
        if isinstance(value, type) and value in self._numbers:
            return {"o": self._numbers[value]}
        name = getattr(value, "__name__", None)
        if isinstance(name, str) and self.brought.get(name) is value:
            return {"g": name}
        module = getattr(value, "__module__", None) or ""
        if module.split(".")[0] in sys.stdlib_module_names and getattr(sys.modules.get(module), str(name), None) is value:
            return {"w": [module, name]}
        if found := next((name for name, known in vars(types).items() if known is value), None):
            return {"w": ["types", found]}
        raise CannotTravel(f"a value of type {type(value).__name__}")

    def _error(self, error: BaseException) -> dict[str, Any]:
        number = next((number for number, known in self._errors.items() if known is error), None)
        if number is not None:
            return {"o": number}
        if type(error).__module__ != "builtins":
            raise CannotTravel(f"an exception of the class {type(error).__name__}")
        return {"x": [type(error).__name__, [self.shared.tree(item) for item in error.args]]}

    def _kind(self, names: list[str], plain: str) -> type:
        """Return a class of the tests for an exception of the program, named and derived like it, so that ``except`` matches it."""
        base = _exception(plain)
        if issubclass(base, _ENDS_ITERATION):
            base = Stopped
        for name in reversed(names):
            brought = self.brought.get(name)
            if isinstance(brought, type) and issubclass(brought, BaseException):
                base = brought
                continue
            base = self._kinds.setdefault((base, name), type(name, (base,), {"__str__": _told}))
        return base

    def _raised(self, plain: str, text: str, names: list[str], arguments: Any, attributes: Any, number: int) -> BaseException:
        if number in self._errors:
            return self._errors[number]
        kind = self._kind(names, plain)
        error: BaseException = kind.__new__(kind)  # its own constructor may need other arguments
        error.args = tuple(decode(item, self._object) for item in arguments)
        error.__dict__.update({key: decode(item, self._object) for key, item in attributes}, _told=text)
        self._errors[number] = error
        return error


def _exception(plain: str) -> type:
    """Return a class of Python by its name, or of the library by module and name. TypeError for any other: it may be forged."""
    module, _, name = plain.rpartition(":")
    kind = getattr(import_module(module), name, None) if module in LIBRARY_ERRORS else None if module else decode({"n": name})
    if not (isinstance(kind, type) and issubclass(kind, BaseException)):
        raise TypeError(f"{plain[:80]} is not an exception")
    return type(kind.__name__, (kind,), {"__str__": _told}) if issubclass(kind, UnicodeError) or module else kind


def _told(error: BaseException) -> str:
    return str(error.__dict__.get("_told", ", ".join(map(str, error.args))))


def _agrees(*_: Any) -> bool:
    global _truths
    _truths += 1
    if _truths > _MOST_TRUTHS:
        raise Enough
    return True


_truths = 0


def _fog(*_: Any, **__: Any) -> "Unknown":
    return _FOG


async def _fog_later(*_: Any) -> "Unknown":
    return _FOG


async def _end_later(*_: Any) -> Any:
    raise StopAsyncIteration


_BOTH_WAYS = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "and", "or", "xor")
_AGREE = ("eq", "ne", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck", "subclasscheck")
_FOGGED = (
    *(f"{way}{name}" for name in _BOTH_WAYS for way in ("", "r")),
    *("neg", "pos", "abs", "invert", "round", "trunc", "floor", "ceil", "getitem", "next", "divmod", "rdivmod", "enter"),
)
_BLANKS = {"len": 0, "int": 0, "float": 0.0, "index": 0, "str": "", "format": "", "exit": False, "setitem": None, "delitem": None}


def _blank(value: Any) -> Any:
    return lambda *_: value


def _special(table: dict[str, Any]) -> dict[str, Any]:
    return {f"__{name}__": function for name, function in table.items()}


# A class is created with all its operators at once: each one that is set later costs as much as ten.
_UnknownOperators: Any = type(
    "_UnknownOperators",
    (),
    _special(
        dict.fromkeys(_AGREE, _agrees)
        | dict.fromkeys(_FOGGED, _fog)
        | {name: _blank(value) for name, value in _BLANKS.items()}
        | {"aenter": _fog_later, "aexit": _fog_later, "anext": _end_later, "aiter": lambda one: one, "hash": lambda _: 0}
    ),
)


class Unknown(_UnknownOperators):
    """See the module."""

    def __init__(self, questions: Questions | None, number: int | None) -> None:
        self._questions, self._number, self._makes = questions, number, False

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._questions is None or self._number is None:
            return _FOG
        return self._questions.ask("call", {"k": self._number}, arguments, keywords, **_made_if(self._makes))

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        _agrees()  # a loop may follow unknown values for ever
        return _FOG

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __repr__(self) -> str:
        return "Unknown"

    def __await__(self) -> Any:
        return _FOG
        yield


_FOG = Unknown(None, None)


def _made_if(makes: bool) -> dict[str, bool]:
    return {"made": True} if makes else {}


def _made(result: Any) -> Any:
    if isinstance(result, Held):
        result.__dict__["_made"] = True
    return result


def _asked(name: str, kind: Any) -> Any:
    return lambda one, *arguments: kind(one._own(name, *arguments))


def _owned(name: str) -> Any:
    return lambda one, *arguments: one._own(name, *arguments)


def _operation(name: str) -> Any:
    def operation(one: "Held", other: Any) -> Any:
        if isinstance(other, Held) or (one._made and not isinstance(other, Unknown)):
            return one._own(name, other)
        return NotImplemented

    return operation


def _comparison(name: str) -> Any:
    def comparison(one: "Held", other: Any) -> Any:
        if isinstance(other, Held):
            return one._own(name, other)
        if isinstance(other, Unknown) or not one._made:
            return NotImplemented
        one._questions.doubt = True
        return False

    return comparison


_KINDS = {"bool": bool, "str": str, "repr": str, "int": int, "float": float, "complex": complex, "format": str}
_OWNED = {name: name for name in ("len", "next", "enter", "bytes", "index")} | {"getitem": "item", "setitem": "put", "delitem": "delete"}
_OPERATIONS = {name: name for name in (*(f"{way}{name}" for name in _BOTH_WAYS for way in ("", "r", "i")), "divmod", "rdivmod")}
_HeldOperators: Any = type(
    "_HeldOperators",
    (),
    _special(
        {name: _asked(name, kind) for name, kind in _KINDS.items()}
        | {name: _owned(own) for name, own in _OWNED.items()}
        | {name: _owned(name) for name in ("neg", "pos", "abs", "invert", "trunc", "floor", "ceil")}
        | {name: _operation(own) for name, own in _OPERATIONS.items()}
        | {name: _comparison(own) for name, own in {"lt": "less", "le": "at_most", "gt": "more", "ge": "at_least"}.items()}
    ),
)


class Held(_HeldOperators):
    """An object of the program.

    Its own operators decide comparisons between two objects of the program. It never equals a value of the tests, whatever it returns, or a
    class whose objects equal everything would pass. Nor does it see the value, which may be the expected one. If the tests have created the
    object of a class (``_made``), it is unknown whether it should be equal: a test that fails because of it gives no verdict. Arithmetic of
    such an object takes values of the tests, but its result does not count as created by the tests.
    """

    def __init__(self, questions: Questions, number: int) -> None:
        self.__dict__.update(_questions=questions, _number=number, _made=False, _makes=False)

    def _own(self, name: str, *arguments: Any) -> Any:
        return self._questions.ask("own", {"o": self._number}, arguments, name=name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        result = self._questions.ask("call", {"o": self._number}, arguments, keywords, **_made_if(self._makes))
        return _made(result) if self._makes else result

    def __getattr__(self, name: str) -> Any:
        if name in _TOLD_BY_CLASS:
            raise Unusable(f"the tests read {name} of an object of the program, which cannot be sent")
        if name.startswith("__") and name not in _OPEN:
            raise AttributeError(name)
        return self._questions.ask("get", {"o": self._number}, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._own("set", name, value)

    def __delattr__(self, name: str) -> None:
        self._own("unset", name)

    def __eq__(self, other: object) -> Any:
        if self is other or isinstance(other, Unknown):
            return True
        if isinstance(other, Held):
            return self._own("same", other)
        self._questions.doubt |= self._made and other is not None
        return False

    def __hash__(self) -> int:
        return int(self._own("hash"))

    def __instancecheck__(self, one: object) -> bool:
        return isinstance(one, Unknown) or (isinstance(one, Held) and bool(self._own("kind", one)))

    def __subclasscheck__(self, one: object) -> bool:
        return isinstance(one, Held) and bool(self._own("subclass", one))

    def __exit__(self, *_: object) -> None:
        self._own("exit")  # it swallows nothing, since an assertion of the tests would be lost

    async def __aenter__(self) -> Any:
        return self._own("enter later")

    async def __aexit__(self, *_: object) -> None:
        self._own("exit later")

    def __aiter__(self) -> Any:
        return self._own("iterate later")

    async def __anext__(self) -> Any:
        try:
            return self._own("next later")
        except Stopped:
            raise StopAsyncIteration from None

    def __await__(self) -> Any:
        return self._own("await")
        yield

    def __iter__(self) -> Iterator[Any]:
        """Yield the items in portions, since there may be no end of them."""
        start, size = 0, _FIRST_ITEMS
        while True:
            items = self._own("list", start, size)
            yield from items
            if len(items) != size:
                return
            start, size = start + size, _MORE_ITEMS

    def __reversed__(self) -> Iterator[Any]:
        return iter(self._own("reversed"))

    def __contains__(self, item: Any) -> bool:
        if isinstance(item, Held):
            return bool(self._own("contains", item))
        if not self._made:
            return any(item == one for one in self)
        try:
            found = any(item == one for one in self)
        except Exception:
            raise Unusable("the tests look for a value in an object of the program that has no items") from None
        self._questions.doubt = True
        return found

    def __reduce_ex__(self, _: Any) -> Any:
        if self._made:
            raise Unusable("the tests pickle an object of the program, which cannot be sent")
        raise TypeError("cannot pickle this object")

    def __copy__(self) -> Any:
        return self._own("copy")

    def __deepcopy__(self, _: Any) -> Any:
        return self._own("deepcopy")

    def __round__(self, *digits: int) -> Any:
        return self._own("round", *digits)


_OPEN = ("__name__", "__qualname__", "__doc__", "__dict__", "__module__", "__annotations__", "__bases__", "__mro__", "__slots__")
_TOLD_BY_CLASS = ("__signature__", "__code__", "__dataclass_fields__")


def type_of(one: Any) -> Any:
    """Return ``type(one)`` in tests."""
    return one._own("class") if isinstance(one, Held) else _FOG if isinstance(one, Unknown) else type(one)


def attribute_of(one: Any, name: str) -> Any:
    """Return ``one.__class__``, ``one.__doc__`` and similar attributes in tests, which every stand-in has itself."""
    if isinstance(one, Unknown):
        return _FOG
    if isinstance(one, Held):
        return one._own("class") if name == "__class__" else one._questions.ask("get", {"o": one._number}, name=name)
    return getattr(one, name)


def is_instance(one: Any, kinds: Any) -> bool:
    """Return ``isinstance`` in tests. Only the program knows whether its object is a generator, or iterable."""
    if not isinstance(one, Held):
        return isinstance(one, kinds)
    each = kinds if isinstance(kinds, tuple) else (kinds,)
    return any(is_instance(one, kind) if isinstance(kind, tuple) else _is_one(one, kind) for kind in each)


def _is_one(one: Held, kind: Any) -> bool:
    if isinstance(kind, Held) or not isinstance(kind, type) or one._questions.brought.get(kind.__name__) is kind:
        return isinstance(one, kind)
    plain = kind.__module__ == "builtins" and kind.__name__ in vars(builtins)  # such a value would have been sent
    return kind is object if plain else bool(one._own("is", kind))


def is_subclass(one: Any, two: Any) -> bool:
    """Return ``issubclass`` in tests."""
    if isinstance(one, Held) and isinstance(two, type):
        return bool(one._own("subclass of", two))
    return isinstance(one, Unknown) or issubclass(one, two)


def has_attribute(one: Any, name: str) -> bool:
    """Return ``hasattr`` in tests: every stand-in has all attributes of Python's own."""
    return bool(one._own("has", name)) if isinstance(one, Held) else hasattr(one, name)


def next_of(one: Any, *default: Any) -> Any:
    """Return ``next`` in tests."""
    try:
        return next(one, *default)
    except Stopped:
        if default:
            return default[0]
        raise
