r"""Formulas in double precision at many points: of both signs, tiny and huge, on several branches, around the numbers of the formulas.

``\arctan(\tan x)`` is x only between two poles of the tangent, and ``|x-1000|`` is ``1000-x`` up to 1000. Such a point costs microseconds,
so about two hundred of them are affordable. A difference at one of them is only a suspicion, which exact arithmetic then confirms or
rejects (``numeric.py``). Only sympy's objects are used; imported on first use.
"""

from __future__ import annotations

import cmath
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from random import Random
from types import ModuleType
from typing import Any

import sympy
from sympy import Add, Expr, I, Mul, NumberSymbol, Pow, Rational, Symbol

__all__ = ["FormulaPair", "Point"]

Point = Mapping[str, Any]
_Values = tuple[float, ...]
_Formula = Callable[[_Values], Any]

_CLOSE = 1e-9
_HUGE = 1e100
_SIZES = (
    *(0.004, 0.03, 0.1, 0.2, 0.35, 0.6, 0.8, 1.3, 1.7, 2.3, 3.4, 4.9, 6.2, 8.7, 13.1),
    *(29.0, 64.0, 170.0, 640.0, 3000.0, 21_000.0, 170_000.0, 1_300_000.0),
)
_MODERATE = _SIZES[2:18]
_WHOLE = (*map(float, range(13)), 20.0, 51.0, 100.0, 1001.0, -1.0, -2.0, -3.0, -10.0)
_MOST_CONSTANTS = 8
_BESIDE = (1.0, 1.0103, 0.9897)
_AWAY = (0.33, 0.71, -0.33, -0.71)
_FAR = (3e9, 7e13, 2e18)
_PIECES = (sympy.Abs, sympy.Max, sympy.Min, sympy.floor, sympy.ceiling, sympy.frac, sympy.sign)
_STEPPED = (sympy.floor, sympy.ceiling, sympy.frac)
_STEPS = tuple(whole + over / 12 for whole in (0, 2, 7, -3) for over in (0, 3, 4, 6, 8, 9))
_NEAR = (4e-4, -4e-4, 1e-7, -1e-7)
_TINY = 1e-3
_MOST_FACTORS = 200
_UNDEFINED = (ArithmeticError, ValueError, TypeError)
"""Errors outside the domain, beyond a double, or for complex numbers in functions that need real ones."""


class FormulaPair:
    """A gold formula and an answer. Without the imaginary unit they are real: undefined if a part of them is not real.

    A point counts if both are defined there. It also counts if the gold formula is defined, all unknowns are positive, and the answer has a
    real value with complex parts. An answer therefore cannot restrict its domain to the branch on which it is right.
    """

    def __init__(self, gold: Expr, answer: Expr, names: Sequence[str]) -> None:
        self.names = names
        module = cmath if gold.has(I) or answer.has(I) else math
        self._gold, self._answer = (_formula(side, names, module) for side in (gold, answer))
        self._formulas = (gold, answer)

    @cached_property
    def _with_complex_parts(self) -> _Formula:
        return _formula(self._formulas[1], self.names, cmath)

    @cached_property
    def _places(self) -> tuple[_Values, ...]:
        count = len(self.names)
        return tuple(dict.fromkeys((*_grid(count), *_around(count, _constants(*self._formulas)), *self._steps(count), *self._far(count))))

    def _steps(self, count: int) -> Iterator[_Values]:
        """Yield places just below and above whole numbers and simple fractions, where a formula may have steps."""
        source = Random(5)
        for step in _STEPS if any(side.has(*_STEPPED) for side in self._formulas) else ():
            for near in _NEAR:
                yield (step + near, *_signed(count - 1, source))

    def _far(self, count: int) -> Iterator[_Values]:
        """Yield distant places, where a formula may have its last piece; only for formulas with pieces, since doubles lose their digits
        there."""
        source = Random(3)
        for size in _FAR if any(side.has(*_PIECES) or _rooted(side) for side in self._formulas) else ():
            for unknown in range(count):
                for sign in (1, -1):
                    others = _signed(count - 1, source)
                    others.insert(unknown, sign * size)
                    yield tuple(others)

    @classmethod
    def of(cls, gold: Expr, answer: Expr) -> FormulaPair | None:
        """Return the pair; None for formulas without unknowns, and for those with a function or a number that double precision does not
        support here."""
        names = sorted({symbol.name for side in (gold, answer) for symbol in side.free_symbols if isinstance(symbol, Symbol)})
        try:
            return cls(gold, answer, names) if names else None
        except (LookupError, OverflowError):
            return None

    def counts(self, point: Point) -> bool:
        """Return whether the two are compared at this point."""
        return self._values(tuple(float(point[name]) for name in self.names)) is not None

    def places(self, factor: float = 1.0) -> Iterator[tuple[_Values, bool]]:
        """Yield the place of every point that counts, and whether the gold formula is ``factor`` times the answer there."""
        for place in self._places:
            values = self._values(place)
            if values is not None:
                yield place, _close(values[0], factor * values[1])

    def point(self, place: _Values) -> Point:
        """Return the place for exact arithmetic."""
        return {name: Rational(value) for name, value in zip(self.names, place, strict=True)}

    def apart(self) -> bool:
        """Return whether the gold formula is defined somewhere with all unknowns positive, and the answer at none of these places."""
        defined = (place for place in self._places if min(place) > 0 and _value(self._gold, place) is not None)
        shared = next((self._values(place) is not None for place in defined), True)
        return not shared and not any(self._values(place) for place in defined)

    def _values(self, at: _Values) -> tuple[Any, Any] | None:
        gold = _value(self._gold, at)
        if gold is None:
            return None
        answer = _value(self._answer, at)
        if answer is None and min(at) > 0:
            answer = _value(self._with_complex_parts, at)
            answer = None if answer is None or abs(answer.imag) > _CLOSE * abs(answer) else answer.real
        return None if answer is None else (gold, answer)


def _value(side: _Formula, at: _Values) -> Any:
    try:
        found = side(at)
        return found if cmath.isfinite(found) else None
    except _UNDEFINED:
        return None


def _close(one: Any, other: Any) -> bool:
    return bool(abs(one - other) <= _CLOSE * max(abs(one), abs(other)))


# --- points ------------------------------------------------------------------------------------------------------------


@cache
def _grid(count: int) -> tuple[tuple[float, ...], ...]:
    source = Random(2024)
    first = [(sign * _about(size, source), *_signed(count - 1, source)) for size in _SIZES for sign in (1, -1)]
    positive = [tuple(_about(source.choice(_MODERATE), source) for _ in range(count)) for _ in range(24 if count > 1 else 0)]
    whole = [(number, *(source.choice(_WHOLE[:15]) for _ in range(count - 1))) for number in _WHOLE]
    return (*first, *positive, *whole)


def _about(size: float, source: Random) -> float:
    """Return a number of about this size, so that no period fits all numbers."""
    return size * source.uniform(0.95, 1.05)


def _signed(count: int, source: Random) -> list[float]:
    return [source.choice((1, -1)) * _about(source.choice(_SIZES), source) for _ in range(count)]


def _constants(*sides: Expr) -> list[float]:
    """Return the numbers at which a formula may change: its parts without unknowns (``2``, ``\\pi``, ``e^{15}``)."""
    sizes = {abs(size) for side in sides for size in _parts_without_unknowns(side)}
    return sorted((size for size in sizes if 0 < size < _HUGE), reverse=True)[:_MOST_CONSTANTS]


def _rooted(side: Expr) -> bool:
    return any(not power.exp.is_integer for power in side.atoms(Pow))


def _parts_without_unknowns(side: Expr) -> Iterator[float]:
    if side.free_symbols:
        for part in side.args:
            yield from _parts_without_unknowns(part)
    elif not side.has(I) and (size := _value(_formula(side, (), math), ())) is not None:
        yield float(size)
        if 0 < abs(size) < _TINY:
            yield 1 / size  # x/10^9


def _around(count: int, constants: Sequence[float]) -> Iterator[tuple[float, ...]]:
    """Yield places at the constants, on both sides of each, and between them; the other unknowns take any values."""
    places = [number * share for number in constants for share in _BESIDE] + [number + away for number in constants for away in _AWAY]
    for low, high in zip(constants[1:], constants, strict=False):
        places += [low + (high - low) * share / 5 for share in range(1, 5)]
    source = Random(7)
    for number, place in enumerate(sign * place for place in places for sign in (1, -1)):
        for unknown in range(count) if count < 3 else (number // 2 % count,):
            others = [source.choice(_WHOLE[1:9]) for _ in range(count - 1)] if source.random() < 0.5 else _signed(count - 1, source)
            others.insert(unknown, place)
            yield tuple(others)


def _binomial(over: float, under: float) -> float:
    """Return the binomial of any number over a whole one.

    :raises ValueError: for arguments that are not supported here.
    """
    if under != int(under) or under > _MOST_FACTORS:
        raise ValueError("only over a small whole number")
    return math.prod((over - factor) / (factor + 1) for factor in range(int(under))) if under >= 0 else 0.0


# --- formulas ----------------------------------------------------------------------------------------------------------


def _inverse(name: str) -> Callable[[ModuleType], Callable[[Any], Any]]:
    return lambda module: lambda value: getattr(module, name)(1 / value)


def _reciprocal(name: str) -> Callable[[ModuleType], Callable[[Any], Any]]:
    return lambda module: lambda value: 1 / getattr(module, name)(value)


_SAME_NAMES = ["sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh", "asinh", "acosh", "atanh", "exp"]
_RECIPROCALS = {"sec": "cos", "csc": "sin", "cot": "tan", "sech": "cosh", "csch": "sinh", "coth": "tanh"}
_INVERSES = {"asec": "acos", "acsc": "asin", "acot": "atan", "asech": "acosh", "acsch": "asinh", "acoth": "atanh"}
_FUNCTIONS: dict[Any, Callable[[ModuleType], Callable[..., Any]]] = {
    **{getattr(sympy, name): operator.attrgetter(name) for name in _SAME_NAMES},
    **{getattr(sympy, name): _reciprocal(of) for name, of in _RECIPROCALS.items()},
    **{getattr(sympy, name): _inverse(of) for name, of in _INVERSES.items()},
    sympy.log: lambda module: lambda value, base=None: module.log(value) if base is None else module.log(value) / module.log(base),
    Add: lambda module: lambda *values: sum(values),
    Mul: lambda module: lambda *values: math.prod(values),
    Pow: lambda module: math.pow if module is math else operator.pow,
    sympy.Abs: lambda module: abs,
    sympy.sign: lambda module: lambda value: math.copysign(1, value) if value else 0,
    sympy.Max: lambda module: max,
    sympy.Min: lambda module: min,
    sympy.floor: lambda module: math.floor,
    sympy.ceiling: lambda module: math.ceil,
    sympy.frac: lambda module: lambda value: value - math.floor(value),
    sympy.binomial: lambda module: _binomial,
    sympy.gamma: lambda module: math.gamma,
    sympy.factorial: lambda module: lambda value: math.gamma(value + 1),
}


def _formula(side: Expr, names: Sequence[str], module: ModuleType) -> _Formula:
    """Return a function of the values of the unknowns.

    :raises LookupError: for a part that is not supported.
    """
    if isinstance(side, Symbol):
        return operator.itemgetter(names.index(side.name))
    if isinstance(side, (sympy.Number, NumberSymbol)):
        return _constant(float(side))
    if side is I:
        return _constant(1j)
    function, parts = _FUNCTIONS[side.func](module), [_formula(part, names, module) for part in side.args]
    if len(parts) == 1:
        (only,) = parts
        return lambda at: function(only(at))
    if len(parts) == 2:
        left, right = parts
        return lambda at: function(left(at), right(at))
    return lambda at: function(*[part(at) for part in parts])


def _constant(value: Any) -> _Formula:
    return lambda at: value
