r"""Decides whether two parsed formulas are equal: exactly if both are rational, otherwise by their values, to many digits and at several
points.

Two different formulas do not agree by accident at many fixed, arbitrary points, and no text can exploit these points without being the
right answer. Values cost a fraction of a symbolic simplification, which for some formulas has no bound. The first points are exact. If the
formulas agree there, about two hundred cheap ones follow (``floats.py``); a difference at one of these is also computed exactly. Formulas
are compared at points where both are real (``\ln x^2`` is ``2\ln x``), unless one contains the imaginary unit. Only sympy's objects are
used; imported on first use.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from random import Random
from typing import Any

from latex2sympy2_extended.logic import And
from sympy import (
    Abs,
    Add,
    Derivative,
    Expr,
    Float,
    I,
    Integer,
    Integral,
    Limit,
    MatrixBase,
    MatrixExpr,
    Max,
    Min,
    Mul,
    Number,
    NumberSymbol,
    Piecewise,
    PoleError,
    Pow,
    Product,
    Rational,
    Sum,
    Symbol,
    binomial,
    ceiling,
    exp,
    factorial,
    floor,
    frac,
    gamma,
    im,
    log,
    nan,
    oo,
    postorder_traversal,
    sign,
    zoo,
)
from sympy.core.numbers import ImaginaryUnit
from sympy.core.relational import Eq, Ge, Gt, Le, Lt, Ne, Relational
from sympy.functions.elementary.hyperbolic import HyperbolicFunction
from sympy.functions.elementary.trigonometric import InverseTrigonometricFunction, TrigonometricFunction
from sympy.matrices.exceptions import MatrixError

from rlcore_plugin_math.floats import FormulaPair, Point
from rlcore_plugin_math.guards import LimitExceeded

__all__ = ["real_number", "same"]

_DIGITS = 40
_HUGE = 10**30
_EXACT = Rational(1, 10**20)
_WITH_DECIMALS = Rational(1, 10**14)  # the noise of one double precision operation, as for plain numbers
_NOTHING = Rational(1, 10**60)  # the size of a difference that cancels
_MANY_DIGITS = 2400  # to distinguish x from x + 10^{-999}, once everything else agrees
_SOME_DIGITS = 120  # if many would take too long
_CHEAP = (Add, Mul, Pow, Number, Symbol, NumberSymbol, ImaginaryUnit, exp, log, Abs, sign, TrigonometricFunction, HyperbolicFunction)
_CONFIRMED = 2  # points at which they are compared to so many digits
_ENOUGH = 4  # points that must agree if formulas are smooth
_MOST = 20  # and if they have pieces
_PIECES = (Abs, Max, Min, floor, ceiling, sign, frac, Piecewise, InverseTrigonometricFunction)
_SIZES = (113, 7, 253, 31, 361, 61, 157, 211, 811, 3001)  # over 101
_FLIPPED = {Gt: Lt, Ge: Le}
_LARGEST = 10_000
_GROWING = (Pow, exp, factorial, binomial, gamma)
_UNFINISHED = (Sum, Product, Integral, Limit, Derivative)
_NO_VALUE = (ArithmeticError, NotImplementedError, PoleError, MatrixError, ValueError)
"""Exceptions of sympy for a formula that it cannot evaluate: a division by zero, insufficient precision, a limit that it does not find, a
matrix without an inverse, a divergent sum, the maximum of complex numbers."""


def same(gold: Any, answer: Any) -> bool | None:
    """Return whether two results of the parser mean the same; None if their values cannot decide it (sets, matrices, unknown functions).

    None also if sympy cannot evaluate one. Any other exception is unexpected, and is raised.
    """
    try:
        return _same(gold, answer)
    except _NO_VALUE:
        return None


def real_number(side: Any) -> Fraction | None:
    """Return the value of a result of the parser, to the working digits; None if it has unknowns, or is not real and finite."""
    try:
        _check_growth(side)
        if not _is_value(side) or side.free_symbols:
            return None
        found = _evaluated(side).evalf(_DIGITS)
    except _NO_VALUE:
        return None
    return Fraction(int(found.p), int(found.q)) if (found := _rational(found)) is not None else None


def _rational(found: Any) -> Any:
    return Rational(found) if found.is_number and found.is_finite and found.is_real else None


def _check_growth(side: Any) -> None:
    """Raise LimitExceeded for a number that takes too long to compute: one power of whole numbers is a single call into C, which no limit
    ends. The traversal goes from the inside out, so that no exponent that is too large is evaluated."""
    for part in postorder_traversal(side):
        if isinstance(part, _GROWING):
            sizes = [arg.evalf(15) for arg in (part.args[1:] if isinstance(part, Pow) else part.args) if not arg.free_symbols]
            if any(size.is_number and (Abs(size.doit()).evalf(15) <= _LARGEST) != True for size in sizes):  # noqa: E712 - sympy's own truth
                raise LimitExceeded(f"an exponent or a factorial above {_LARGEST}")


def _same(gold: Any, answer: Any) -> bool | None:
    _check_growth(gold)
    _check_growth(answer)
    relations = [list(_relations(side)) for side in (gold, answer)]
    if all(relations):
        of_gold, of_answer = relations
        if not all(_is_value(part) for side in (*of_gold, *of_answer) for part in (side.lhs, side.rhs)):
            return None  # between points or sets
        return len(of_gold) == len(of_answer) and all(map(_same_relation, of_gold, of_answer))
    if not (_is_value(gold) and _is_value(answer)):
        return None
    if not (gold.has(Float) and answer.has(Float)):
        gold, answer = _exact(gold), _exact(answer)
    gold, answer = _with_unit(gold), _with_unit(answer)
    if gold.free_symbols or answer.free_symbols:
        return _same_function(gold, answer)
    return _same_constant(gold, answer)


def _is_value(side: Any) -> bool:
    return isinstance(side, Expr) and not isinstance(side, (MatrixExpr, MatrixBase))


def _with_unit(side: Any) -> Any:
    return side.subs({symbol: I for symbol in side.free_symbols if symbol.name == "i"})


def _exact(side: Any) -> Any:
    """Return decimals as the fractions that they spell. Only if both sides have decimals are they compared up to the noise of a double."""
    return side.xreplace({number: Rational(str(number)) for number in side.atoms(Float)}) if side.has(Float) else side


# --- relations ---------------------------------------------------------------------------------------------------------


def _relations(side: Any) -> Iterator[Relational]:
    """Yield the relations of a chain, in order; nothing if the side does not consist of relations only."""
    parts = getattr(side, "_unsorted_args", side.args) if isinstance(side, And) else (side,)
    if all(isinstance(part, Relational) for part in parts):
        yield from parts


def _same_relation(gold: Relational, answer: Relational) -> bool:
    """Return whether both have the same sign, and the differences of their sides have one ratio everywhere (a positive one for
    inequalities)."""
    (kind, expected), (other, found) = (_difference(side) for side in (gold, answer))
    expected, found = _with_real_roots(expected), _with_real_roots(found)
    if kind is not other or _same_function(expected, Integer(0)) or _same_function(found, Integer(0)):
        return False
    ratios, places = [], []
    for point in _points({*_names(expected), *_names(found)}):
        above, below = _value(expected, point), _value(found, point)
        if above is None or below is None:
            continue
        if Abs(below) > _NOTHING:
            ratios.append(above / below)
            places.append(point)
        elif Abs(above) > _NOTHING:
            return False
        if len(ratios) == _MOST // 2:
            break
    if len(ratios) < _ENOUGH:
        return False
    if kind in (Lt, Le) and not all(ratio.is_real and ratio > 0 for ratio in ratios):
        return False
    if not all(_close(ratios[0], ratio, _tolerance(expected, found)) for ratio in ratios[1:]):
        return False
    if not _proportional_on_branches(expected, found, ratios[0]):
        return False
    digits = _confirming_digits(expected, found)
    if not digits:
        return True
    first, second = (_precise(expected, point, digits) / _precise(found, point, digits) for point in places[:_CONFIRMED])
    return _agree(first, second, digits)


def _proportional_on_branches(expected: Expr, found: Expr, ratio: Any) -> bool:
    """Return False if one side is another multiple of the other at one of many more points."""
    quick = FormulaPair.of(expected, found) if ratio.is_real else None
    suspects = (quick.point(place) for place, alike in quick.places(float(ratio)) if not alike) if quick else ()
    values = ((_value(expected, point), _value(found, point)) for point in suspects)
    return all(above is None or below is None or _close(above, ratio * below, _tolerance(expected, found)) for above, below in values)


def _difference(side: Relational) -> tuple[type, Expr]:
    kind: type = side.func
    if kind in _FLIPPED:
        return _FLIPPED[kind], _with_unit(side.rhs - side.lhs)
    return (kind if kind in (Eq, Ne, Lt, Le) else type(None)), _with_unit(side.lhs - side.rhs)


# --- formulas with unknowns --------------------------------------------------------------------------------------------


def _names(side: Expr) -> set[str]:
    return {symbol.name for symbol in side.free_symbols}


def _points(names: set[str]) -> Iterator[Point]:
    """Yield values for every unknown: fractions of either sign, small and large, then positive ones, then whole numbers."""
    source, ordered = Random(2024), sorted(names)
    for size in _SIZES:
        for sign_of_first in (1, -1):
            others = {name: source.choice((1, -1)) * Rational(source.choice(_SIZES), 101) for name in ordered[1:]}
            yield {ordered[0]: sign_of_first * Rational(size, 101), **others} if ordered else {}
    for _ in range(4):
        yield {name: Rational(source.choice(_SIZES), 101) for name in ordered}
    for _ in range(5):
        yield {name: Integer(source.randint(2, 9)) for name in ordered}


def _same_function(gold: Expr, answer: Expr) -> bool | None:
    gold, answer = (_with_real_roots(side.doit() if side.has(*_UNFINISHED) else side) for side in (gold, answer))
    if not (gold.free_symbols or answer.free_symbols):
        return _same_constant(gold, answer)
    quick = FormulaPair.of(gold, answer)
    agreed = _agreeing(gold, answer, quick)
    if agreed is None or (quick and (quick.apart() or not _agree_on_branches(gold, answer, quick, agreed))):
        return False
    return _confirmed(gold, answer, agreed) if len(agreed) >= _ENOUGH else None


def _agreeing(gold: Expr, answer: Expr, quick: FormulaPair | None) -> list[Point] | None:
    """Return points at which the two agree to the working digits; None if they differ at one."""
    enough = _ENOUGH if quick or not _has_branches(gold, answer) else _MOST
    agreed = []
    for point in _points(_names(gold) | _names(answer)):
        same_here = _same_at(gold, answer, point)
        if same_here is False and (quick is None or quick.counts(point)):
            return None
        if same_here:
            agreed.append(point)
        if len(agreed) == enough:
            break
    return agreed


def _agree_on_branches(gold: Expr, answer: Expr, quick: FormulaPair, agreed: list[Point]) -> bool:
    """Return False if they differ at one of many more points. ``agreed`` grows while it is short."""
    for place, alike in quick.places():
        if alike and len(agreed) >= _ENOUGH:
            continue
        point = quick.point(place)
        same_here = _same_at(gold, answer, point)
        if same_here is False:
            return False
        if same_here:
            agreed.append(point)
    return True


def _same_at(gold: Expr, answer: Expr, point: Point) -> bool | None:
    """Return whether they agree at a point; None if one has no value there, or none that counts."""
    one, other = _value(gold, point), _value(answer, point)
    if one is None or other is None or not (gold.has(I) or answer.has(I) or (_real(one) and _real(other))):
        return None
    return _close(one, other, _tolerance(gold, answer))


def _has_branches(*sides: Expr) -> bool:
    return any(side.has(*_PIECES) or _roots(side) for side in sides)


def _roots(side: Expr) -> bool:
    return any(not power.exp.is_integer for power in side.atoms(Pow))


def _is_odd_root(side: Any) -> bool:
    return isinstance(side, Pow) and isinstance(side.exp, Rational) and side.exp.q > 1 and side.exp.q % 2 == 1


def _with_real_roots(side: Expr) -> Expr:
    """Return the side with real roots: ``x^{1/3}`` is real for negative x, but sympy's value is complex. With the imaginary unit the side
    stays unchanged."""
    if side.has(I) or not any(map(_is_odd_root, side.atoms(Pow))):
        return side
    return side.replace(_is_odd_root, lambda root: sign(root.base) ** root.exp.p * Abs(root.base) ** root.exp)


def _value(side: Expr, point: Point) -> Any:
    """Return the value at a point to many digits; None if there is none."""
    found = side.evalf(_DIGITS, subs=_bindings(side, point))
    return found if found.is_number and found.is_finite and not found.free_symbols else None


def _bindings(side: Expr, point: Point) -> dict[Symbol, Any]:
    return {symbol: point[symbol.name] for symbol in side.free_symbols if isinstance(symbol, Symbol)}


def _confirmed(gold: Expr, answer: Expr, points: Sequence[Point]) -> bool:
    """Return whether values that agree to the working digits also agree to many more, so that no offset is too small to count."""
    digits = _confirming_digits(gold, answer)
    if not digits:
        return True
    if (difference := gold - answer).is_Rational:
        return bool(difference == 0)
    values = ((_precise(gold, point, digits), _precise(answer, point, digits)) for point in points[:_CONFIRMED])
    return all(_agree(one, other, digits) for one, other in values)


def _confirming_digits(*sides: Expr) -> int:
    """Return the number of digits to confirm. It is 0 for decimals, whose noise is allowed, and for formulas that have only their working
    digits (an integral)."""
    if any(side.has(Float, *_UNFINISHED) for side in sides):
        return 0
    return _MANY_DIGITS if all(isinstance(part, _CHEAP) for side in sides for part in postorder_traversal(side)) else _SOME_DIGITS


def _precise(side: Expr, point: Point, digits: int) -> Any:
    return side.evalf(digits, subs=_bindings(side, point), maxn=digits + 100)


def _agree(one: Any, other: Any, digits: int) -> bool:
    return bool(Abs(one - other) <= Rational(1, 10 ** (digits // 2)) * (max(Abs(one), Abs(other)) + 1))


def _real(value: Any) -> bool:
    return bool(Abs(im(value)) <= _EXACT * Abs(value) + _NOTHING)


def _tolerance(*sides: Expr) -> Rational:
    return _WITH_DECIMALS if any(side.has(Float) for side in sides) else _EXACT


def _close(one: Any, other: Any, tolerance: Rational) -> bool:
    return bool(Abs(one - other) <= tolerance * max(Abs(one), Abs(other)) + _NOTHING)


# --- constants ---------------------------------------------------------------------------------------------------------


def _evaluated(side: Any) -> Any:
    r"""Return the side with its parts computed; ``\sqrt[3]{-8}`` is -2, unless the imaginary unit is written too."""
    found = side.doit()
    if side.has(I) or not _is_value(found) or not any(map(_is_negative_root, found.atoms(Pow))):
        return found
    return found.replace(_is_negative_root, lambda root: (-1) ** root.exp.p * Abs(root.base) ** root.exp)


def _is_negative_root(side: Any) -> bool:
    return _is_odd_root(side) and side.base.is_extended_negative is True


def _same_constant(gold: Any, answer: Any) -> bool | None:
    r"""Compare constants, also unevaluated ones (``\int_0^1 x\,dx``, ``e^{i\pi}``). Infinite and undefined ones equal nothing here."""
    tolerance = _tolerance(gold, answer)
    gold, answer = (_evaluated(side) for side in (gold, answer))
    if not (_is_value(gold) and _is_value(answer)):
        return None  # evaluated, a matrix to a power is a matrix
    if any(side.has(nan, zoo, oo, -oo) for side in (gold, answer)):
        return False
    if gold.is_Rational and answer.is_Rational:
        return bool(gold == answer)
    exact = _exact(gold), _exact(answer)
    if tolerance != _EXACT and exact[0].is_Rational is not exact[1].is_Rational:
        return _confirmed(*exact, [{}])  # a decimal is not an irrational number, however many of its digits it has
    if tolerance == _EXACT and (gold - answer).is_Rational:
        return bool(gold == answer)
    difference, *sizes = (Abs(side.evalf(_DIGITS)).evalf(_DIGITS) for side in (gold - answer, gold, answer))
    if not all(size.is_number and size.is_finite and size.is_comparable is not False for size in (difference, *sizes)):
        return None if gold.is_finite is not False and answer.is_finite is not False else False
    if difference.is_zero:
        return True
    if max(sizes) > _HUGE:
        return tolerance == _EXACT and _confirmed(gold, answer, [{}])  # beyond the precision of the working digits
    # In sympy's numbers, whose exponents are unbounded: a float turns e^{900} into infinity and e^{-900} into 0.
    return bool(difference <= tolerance * (min(*sizes, 1) if tolerance == _EXACT else min(sizes))) and _confirmed(gold, answer, [{}])
