"""The only door to math-verify, opened on first need, under a time limit of our own.

math-verify's own limit is whole seconds of ``signal.alarm`` for each of several calls; ours is one bound for the whole comparison, and it
repeats until it is heard, so that a library that swallows it once does not run on.
"""

from __future__ import annotations

import logging
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from rlcore_plugin_math.guards import LimitExceeded

__all__ = ["equal", "parses", "time_limit"]

_AGAIN = 0.2
_DIGITS = 40
_HUGE = 10**30
_DECIMALS = 12  # math-verify's 6 makes all numbers below a millionth equal


def parses(text: str) -> bool:
    """True where math-verify makes anything of the text."""
    return bool(_parse(text))


def equal(gold: str, answer: str) -> bool | None:
    """Whether math-verify finds the two equal; None where it cannot parse the answer."""
    parsed = _parse(answer)
    if not parsed:
        return None
    from math_verify import verify

    expected = _parse(gold)
    verdicts = [_same_constant(one, other) for one in expected for other in parsed]
    if verdicts and all(verdict is False for verdict in verdicts):
        return False  # exact constants that differ: math-verify would round both, e^{-900} to 0
    if verify(expected, parsed, float_rounding=_DECIMALS, strict=True, allow_set_relation_comp=True, timeout_seconds=None):
        return True
    return any(verdicts)


def _same_constant(gold: Any, answer: Any) -> bool | None:
    r"""Exact constants that math-verify leaves unevaluated (``\int_0^1 x\,dx``, ``e^{i\pi}``), compared to 20 digits; None for others."""
    from sympy import Expr, Float, I

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)) or gold.has(Float) or answer.has(Float):
        return None
    gold, answer = (side.subs({symbol: I for symbol in side.free_symbols if symbol.name == "i"}) for side in (gold, answer))
    if gold.free_symbols or answer.free_symbols:
        return None
    try:
        gold, answer = gold.doit(), answer.doit()
        if gold.is_Rational and answer.is_Rational:
            return bool(gold == answer)
        return _close(gold, answer)
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return None  # infinities, undefined or not a number: not a constant


def _close(gold: Any, answer: Any) -> bool | None:
    """Equal to 20 digits. In sympy's numbers, whose exponents have no end: a float turns e^{900} into infinity and e^{-900} into 0."""
    from sympy import Abs, Rational

    difference, *sizes = (Abs(side.evalf(_DIGITS)).evalf(_DIGITS) for side in (gold - answer, gold, answer))
    if not all(size.is_number and size.is_finite and size.is_comparable is not False for size in (difference, *sizes)):
        return None if gold.is_finite is not False and answer.is_finite is not False else False
    if difference.is_zero:
        return True
    largest = max(sizes)
    if largest > _HUGE:
        return False  # beyond what the working digits tell apart
    return bool(difference <= Rational(1, 10**20) * min(largest, 1))


def _parse(text: str) -> list[Any]:
    """As LaTeX, all of it or nothing: with its plain expressions too, math-verify takes the last number of what it cannot parse."""
    from math_verify import LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own limit is off: ours is on
    return list(
        parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig()],
            fallback_mode="no_fallback",
            parsing_timeout=None,  # type: ignore[arg-type]
        )
    )


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise LimitExceeded in the block after ``seconds`` of wall clock. Outside the main thread no limit can be set; the engine's holds."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise LimitExceeded(f"the comparison took more than {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
