"""Whole numbers with more digits than Python converts (4300, a limit of the whole process that a library must not change).

>>> str(LongNumber("7" * 5000)) == "7" * 5000, LongNumber("7" * 5000) % 10
(True, 7)
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["MOST_DIGITS", "LongNumber", "json_text"]

MOST_DIGITS = 50_000
_PIECE = 600
"""Digits that are converted at a time."""


class LongNumber(int):
    """A whole number that keeps its digits, so that it can be written again.

    Raises ValueError if it has more than ``MOST_DIGITS`` digits."""

    _digits: str

    def __new__(cls, digits: str) -> LongNumber:
        """Make the number of a text of decimal digits, with or without a minus sign."""
        number = super().__new__(cls, _converted(digits))
        number._digits = digits
        return number

    def __repr__(self) -> str:
        return self._digits

    def __str__(self) -> str:
        return self._digits

    def __reduce__(self) -> tuple[type[LongNumber], tuple[str]]:
        return LongNumber, (self._digits,)


def _converted(digits: str) -> int:
    plain = digits.removeprefix("-")
    if len(plain) > MOST_DIGITS:
        raise ValueError(f"a number has {len(plain)} digits, and at most {MOST_DIGITS} are read")
    value = 0
    for start in range(0, len(plain), _PIECE):
        piece = plain[start : start + _PIECE]
        value = value * 10 ** len(piece) + int(piece)
    return -value if digits.startswith("-") else value


def json_text(value: Any, default: Callable[[Any], Any]) -> str:
    """Return compact JSON with sorted keys. A ``LongNumber`` becomes an object with its digits, because JSON cannot write it.

    Raises TypeError and ValueError as ``json.dumps`` does."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), default=default)
    except ValueError:
        return json.dumps(_spelled(value), sort_keys=True, separators=(",", ":"), default=default)


def _spelled(value: Any) -> Any:
    if isinstance(value, LongNumber):
        return {"\0digits": str(value)}
    if isinstance(value, Mapping):
        return {name: _spelled(part) for name, part in value.items()}
    return [_spelled(part) for part in value] if isinstance(value, list | tuple) else value
