"""The only door to math-verify, opened on first need; its own time limit is off, the caller's (``limits.py``) holds."""

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
    """True where math-verify makes anything of the text."""
    return bool(_parse(text))


def equal(gold: str, answer: str) -> bool | None:
    """Whether the two mean the same; None where math-verify cannot parse the answer.

    An answer that algebra cannot bear is wrong, or a response could choose to be left out of training. If the gold answer compared with
    itself raises too, that exception is raised: an error of the row.
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
    """The real number that a formula without unknowns is, to 40 digits; None for anything else, what algebra cannot bear too."""
    _load()
    from rlcore_plugin_math.numeric import real_number

    try:
        parsed = _parse(text)
        return real_number(parsed[0]) if len(parsed) == 1 else None
    except Exception:
        return None


@cache
def _load() -> None:
    """Import what the others import by name: a second that is not the answer's."""
    with paused():
        for name in ("math_verify", "rlcore_plugin_math.numeric"):
            import_module(name)


@lru_cache(maxsize=4096)
def _expected(gold: str) -> tuple[Any, ...]:
    """A gold formula is parsed once a worker, not once a rollout."""
    return tuple(_parse(gold))


_TRIGONOMETRY = re.compile(r"\\(?:arc)?(?:sin|cos|tan|cot|sec|csc)h?(?![A-Za-z])")
_DEGREES = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?\^ ?(?:\{ ?\\circ ?\}|\\circ)")


def _parse(text: str) -> list[Any]:
    """As LaTeX, all of it or nothing: with its plain expressions too, math-verify takes the last number of what it cannot parse."""
    _load()
    from latex2sympy2_extended import NormalizationConfig
    from math_verify import LatexExtractionConfig, parse

    if _TRIGONOMETRY.search(text):
        text = _DEGREES.sub(r"(\1 \\cdot \\pi / 180)", text)
    # Units were taken off before, where they are units: its own way to drop them makes 3 of "3rs".
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
