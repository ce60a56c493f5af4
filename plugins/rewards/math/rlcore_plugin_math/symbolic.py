"""The only module that calls math-verify, which is imported on first use. Its own time limit is off; the caller's (``limits.py``)
applies."""

from __future__ import annotations

import logging
import re
from fractions import Fraction
from functools import cache, lru_cache
from importlib import import_module
from typing import Any

from rlcore_plugin_math.limits import paused

__all__ = ["equal", "parses", "value"]

_DECIMALS = 12  # math-verify's 6 makes all numbers below a millionth equal


def parses(text: str) -> bool:
    """Return whether math-verify can parse the text."""
    return bool(_parse(text))


def equal(gold: str, answer: str) -> bool | None:
    """Return whether the two mean the same; None if math-verify cannot parse the answer.

    An answer for which algebra raises is wrong; otherwise a response could exclude itself from training. If comparing the gold answer with
    itself raises too, that exception is raised: it is an error of the row.
    """
    try:
        return _equal(gold, answer)
    except Exception:
        _equal(gold, gold)
        return False


def _equal(gold: str, answer: str) -> bool | None:
    parsed = _parse(answer)
    if not parsed:
        return None
    from math_verify import verify

    from rlcore_plugin_math.numeric import same

    expected = _expected(gold)
    if len(expected) == len(parsed) == 1 and (verdict := same(expected[0], parsed[0])) is not None:
        return verdict
    return bool(verify(list(expected), parsed, float_rounding=_DECIMALS, strict=True, allow_set_relation_comp=True, timeout_seconds=None))


@lru_cache(maxsize=4096)
def value(text: str) -> Fraction | None:
    """Return the real number that a formula without unknowns is, to 40 digits; None for anything else, also if algebra raises."""
    _load()
    from rlcore_plugin_math.numeric import real_number

    try:
        parsed = _parse(text)
        return real_number(parsed[0]) if len(parsed) == 1 else None
    except Exception:
        return None


@cache
def _load() -> None:
    """Import modules that functions here import by name; this takes a second, which must not count against the answer."""
    with paused():
        for name in ("math_verify", "rlcore_plugin_math.numeric"):
            import_module(name)


@lru_cache(maxsize=4096)
def _expected(gold: str) -> tuple[Any, ...]:
    """Return the parsed gold formula, which each worker parses once instead of once per rollout."""
    return tuple(_parse(gold))


_TRIGONOMETRY = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?(?![A-Za-z])")
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?\^ ?(?:\{ ?\\circ ?\}|\\circ)")


def _parse(text: str) -> list[Any]:
    """Parse the whole text as LaTeX, or nothing: with plain expressions, math-verify would take the last number of a text that it cannot
    parse."""
    _load()
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    if _TRIGONOMETRY.search(text):
        text = _DEGREES.sub(r"(\1 \\cdot \\pi / 180)", text)
    # Units were already removed, if they are units: math-verify's own removal turns "3rs" into 3.
    spelling = NormalizationConfig(basic_latex=True, units=False, malformed_operators=True, nits=False, boxed="none", equations=False)
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns that its own limit is off: ours is on
    return list(
        parse(
            f"${text}$",
            extraction_config=[LatexExtractionConfig(normalization_config=spelling, boxed_match_priority=-1)],
            fallback_mode="no_fallback",
            parsing_timeout=None,  # type: ignore[arg-type]
        )
    )
