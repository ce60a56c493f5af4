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
    if verify(expected, parsed, float_rounding=_DECIMALS, strict=True, allow_set_relation_comp=True, timeout_seconds=None):
        return True
    return any(_same_constant(one, other) for one in expected for other in parsed)


def _same_constant(gold: Any, answer: Any) -> bool:
    r"""Exact constants that math-verify leaves unevaluated (``\int_0^1 x\,dx``, ``e^{i\pi}``), compared to 20 digits."""
    from sympy import Expr, Float, I

    if not (isinstance(gold, Expr) and isinstance(answer, Expr)) or gold.has(Float) or answer.has(Float):
        return False
    gold, answer = (side.subs({symbol: I for symbol in side.free_symbols if symbol.name == "i"}) for side in (gold, answer))
    if gold.free_symbols or answer.free_symbols:
        return False
    try:
        gold, answer = gold.doit(), answer.doit()
        if gold.is_Rational and answer.is_Rational:
            return bool(gold == answer)
        values = [complex(side.evalf(_DIGITS)) for side in (gold, answer)]
        difference = abs(complex((gold - answer).evalf(_DIGITS)))
    except (TypeError, ValueError, OverflowError, ArithmeticError):
        return False  # infinities, undefined or not a number: not a constant
    return difference <= 1e-20 * max(map(abs, values))


def _parse(text: str) -> list[Any]:
    from math_verify import ExprExtractionConfig, LatexExtractionConfig, parse

    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own limit is off: ours is on
    return list(
        parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig(), ExprExtractionConfig()],
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
