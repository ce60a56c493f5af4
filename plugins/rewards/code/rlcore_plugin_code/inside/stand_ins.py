"""What tests hold in the place of a program that is elsewhere: every use is a call that is written down, and answered in the next round.

A call is ``{"do": …, "of": a reference, …}``: ``name`` (a name of the program), ``get`` (an attribute), ``call`` (``args``, ``keywords``),
``own`` (an operation of Python). References: ``{"g": name}``, ``{"k": the number of an earlier call}``, ``{"o": an object by its number}``.

``Unknown`` is the result of a call that nobody has answered yet: it agrees with everything, so that tests go on and as many calls as
possible are known after one round. No verdict is made of a run that met one. ``Held`` is an object of the program that cannot travel.
"""

from collections.abc import Iterator
from typing import Any

from rlcore_plugin_code.inside.wire import CannotTravel, decode, encode, settled

__all__ = ["Enough", "Held", "Questions", "Unknown", "Unusable"]

_MOST_GUESSES = 5000  # calls of a round that nobody has answered yet
_FIRST_ITEMS, _MORE_ITEMS = 50, 1000  # of an object of the program, in one call
_MOST_TRUTHS = 100_000  # a loop may ask for ever whether what is unknown is true


class Unusable(Exception):
    """The tests cannot be run here; says nothing about the program."""


class Enough(BaseException):
    """This round has guessed enough; the next one knows more."""


class Questions:
    """The calls of this run, in order, and the answers that earlier rounds brought (``asked``: [call, answer] pairs, in order)."""

    def __init__(self, asked: list[Any]) -> None:
        self._answers = [answer for _, answer in asked]
        self._asked = [settled(call, self._answers) for call, _ in asked]
        self._held: dict[int, Held] = {}
        self._kinds: dict[tuple[type, str], type] = {}
        self._numbers: dict[type, int] = {}
        self.calls: list[Any] = []
        self.known = 0
        self.unknown = 0
        self.uses = 0

    def ask(self, do: str, of: dict[str, Any], arguments: tuple[Any, ...] = (), **more: Any) -> Any:
        """What the call gives: its value, an ``Unknown``, or the exception that it raised."""
        try:
            call = {"do": do, "of": of, "args": [encode(item, self._reference) for item in arguments]} | more
        except CannotTravel as problem:
            if self.unknown:
                raise  # of a guess; the next round knows more
            raise Unusable(f"the tests pass {problem} to the program, which cannot be carried there") from None
        number = len(self.calls)
        self.calls.append(call)
        self.uses += do != "name"
        if self.unknown or number >= len(self._asked) or self._asked[number] != call:
            self.unknown += 1
            if self.unknown > _MOST_GUESSES:
                raise Enough
            return Unknown(self, number)
        self.known += 1
        answer = self._answers[number]
        if "raised" in answer:
            raise self._raised(*answer["raised"])
        for place, item in answer.get("changed", ()):
            _change(arguments[place], decode(item, self._object))
        return decode(answer["value"], self._object)

    def call(self, of: dict[str, Any], arguments: tuple[Any, ...], keywords: dict[str, Any]) -> Any:
        """The call of a function of the program."""
        return self.ask("call", of, arguments, keywords={key: encode(item, self._reference) for key, item in keywords.items()})

    def _object(self, tree: dict[str, Any]) -> Any:
        number = tree["o"]
        if "raises" in tree:
            kind = self._kind(*tree["raises"])
            self._numbers[kind] = number
            return kind
        return self._held.setdefault(number, Held(self, number))

    def _reference(self, value: Any) -> dict[str, Any]:
        if isinstance(value, Held):
            return {"o": value._number}
        if isinstance(value, Unknown) and value._number is not None:
            return {"k": value._number}
        if isinstance(value, type) and value in self._numbers:
            return {"o": self._numbers[value]}
        raise CannotTravel(f"a value of type {type(value).__name__}")

    def _kind(self, names: list[str], plain: str) -> type:
        """An exception class of the program: one of the tests' own, named and derived as the program's, so that ``except`` knows it."""
        base: type = decode({"n": plain})
        for name in reversed(names):
            base = self._kinds.setdefault((base, name), type(name, (base,), {"__str__": _told}))
        return base

    def _raised(self, plain: str, text: str, names: list[str], arguments: Any, attributes: Any) -> BaseException:
        kind = self._kind(names, plain)
        if issubclass(kind, UnicodeError):
            return ValueError(text)
        error: BaseException = kind(*(decode(item, self._object) for item in arguments))
        error.__dict__.update({key: decode(item, self._object) for key, item in attributes}, _told=text)
        return error


def _told(error: BaseException) -> str:
    return str(error.__dict__.get("_told", ", ".join(map(str, error.args))))


def _change(mine: Any, after: Any) -> None:
    """What the program did to an argument is done to the caller's."""
    if type(mine) is not type(after):
        return
    if isinstance(mine, list | bytearray):
        mine[:] = after
    elif isinstance(mine, dict | set):
        mine.clear()
        mine.update(after)


class Unknown:
    """See the module."""

    def __init__(self, questions: Questions | None, number: int | None) -> None:
        self._questions, self._number = questions, number

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        if self._questions is None or self._number is None:
            return _FOG
        return self._questions.call({"k": self._number}, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return _FOG

    def __iter__(self) -> Iterator[Any]:
        return iter(())

    def __hash__(self) -> int:
        return 0

    def __repr__(self) -> str:
        return "Unknown"


def _agrees(*_: Any) -> bool:
    global _truths
    _truths += 1
    if _truths > _MOST_TRUTHS:
        raise Enough
    return True


_truths = 0


def _fog(*_: Any, **__: Any) -> Unknown:
    return _FOG


for _name in ("eq", "ne", "lt", "le", "gt", "ge", "bool", "contains", "instancecheck"):
    setattr(Unknown, f"__{_name}__", _agrees)
for _name in (
    *("add", "radd", "sub", "rsub", "mul", "rmul", "truediv", "rtruediv", "floordiv", "rfloordiv", "mod", "rmod", "pow", "rpow"),
    *("and", "rand", "or", "ror", "xor", "rxor", "lshift", "rshift", "neg", "pos", "abs", "invert", "round"),
    *("getitem", "next", "divmod", "rdivmod", "matmul", "rmatmul", "enter"),
):
    setattr(Unknown, f"__{_name}__", _fog)
for _name, _blank in (("len", 0), ("int", 0), ("float", 0.0), ("index", 0), ("str", ""), ("exit", False), ("setitem", None)):
    setattr(Unknown, f"__{_name}__", lambda *_, blank=_blank: blank)
_FOG = Unknown(None, None)


class Held:
    """An object of the program. Its own operators decide only between two objects of the program: with a value of the tests it is never
    equal, whatever it says, or a class whose objects equal everything would pass."""

    def __init__(self, questions: Questions, number: int) -> None:
        self.__dict__.update(_questions=questions, _number=number)

    def _own(self, name: str, *arguments: Any) -> Any:
        return self._questions.ask("own", {"o": self._number}, arguments, name=name)

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._questions.call({"o": self._number}, arguments, keywords)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") and name not in ("__name__", "__doc__", "__dict__"):
            raise AttributeError(name)
        return self._questions.ask("get", {"o": self._number}, name=name)

    def __setattr__(self, name: str, value: Any) -> None:
        self._own("set", name, value)

    def __setitem__(self, key: Any, value: Any) -> None:
        self._own("put", key, value)

    def __eq__(self, other: object) -> Any:
        return self is other or (isinstance(other, Held) and self._own("same", other))

    def __hash__(self) -> int:
        return int(self._own("hash"))

    def __instancecheck__(self, one: object) -> bool:
        return isinstance(one, Unknown) or (isinstance(one, Held) and bool(self._own("kind", one)))

    def __enter__(self) -> Any:
        return self._own("enter")

    def __exit__(self, *_: object) -> None:
        self._own("exit")  # it swallows nothing: an assertion of the tests would be lost with it

    def __bool__(self) -> bool:
        return bool(self._own("bool"))

    def __len__(self) -> int:
        return self._own("len")  # type: ignore[no-any-return]

    def __iter__(self) -> Iterator[Any]:
        """Some at a time: there may be no end of them."""
        start, size = 0, _FIRST_ITEMS
        while True:
            items = self._own("list", start, size)
            yield from items
            if len(items) != size:
                return
            start, size = start + size, _MORE_ITEMS

    def __contains__(self, item: Any) -> bool:
        return any(item == one for one in self)

    def __next__(self) -> Any:
        return self._own("next")

    def __getitem__(self, key: Any) -> Any:
        return self._own("item", key)

    def __str__(self) -> str:
        return str(self._own("str"))

    def __repr__(self) -> str:
        return str(self._own("repr"))

    def __int__(self) -> int:
        return int(self._own("int"))

    def __float__(self) -> float:
        return float(self._own("float"))

    def __neg__(self) -> Any:
        return self._own("neg")

    def __abs__(self) -> Any:
        return self._own("abs")

    def __lt__(self, other: Any) -> Any:
        return self._own("less", other) if isinstance(other, Held) else NotImplemented

    def __le__(self, other: Any) -> Any:
        return self._own("at_most", other) if isinstance(other, Held) else NotImplemented

    def __add__(self, other: Any) -> Any:
        return self._own("add", other) if isinstance(other, Held) else NotImplemented

    def __sub__(self, other: Any) -> Any:
        return self._own("subtract", other) if isinstance(other, Held) else NotImplemented

    def __mul__(self, other: Any) -> Any:
        return self._own("multiply", other) if isinstance(other, Held) else NotImplemented
