"""Whole numbers of many digits as decimal text. Python converts at most 4300 digits, a setting of the whole process, which a plugin must
not change. Longer numbers are therefore converted piece by piece here, up to a bound.

>>> whole("-" + "7" * 5000) == -7 * (10**5000 - 1) // 9
True
"""

from __future__ import annotations

import json
from typing import Any

__all__ = ["MOST_DIGITS", "decimal", "read_json", "whole"]

MOST_DIGITS = 50_000
"""The most digits of a whole number; LiveCodeBench's judge sets the same bound (``sys.set_int_max_str_digits``)."""
_PIECE = 4000
_BITS = MOST_DIGITS * 10 // 3  # of a number of so many digits, at least


def read_json(text: str) -> Any:
    """Return the value of a JSON text, including whole numbers of up to ``MOST_DIGITS`` digits.

    :raises ValueError: it is not JSON, or contains a longer number.
    :raises RecursionError: it is nested too deep.
    """
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number of more digits than Python converts
        return json.loads(text, parse_int=whole)


def whole(text: str) -> int:
    """Return the number in a text of digits with or without a sign; ValueError if it has more than ``MOST_DIGITS`` digits."""
    digits = text.removeprefix("-")
    if not digits.isdecimal():
        raise ValueError(f"{text[:40]!r} is not a whole number")
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a whole number of {len(digits)} digits; at most {MOST_DIGITS} are read")
    value = 0
    for start in range(0, len(digits), _PIECE):
        piece = digits[start : start + _PIECE]
        value = value * 10 ** len(piece) + int(piece)
    return -value if text.startswith("-") else value


def decimal(number: int) -> str:
    """Return the number in decimal digits; ValueError if it has more than about ``MOST_DIGITS``."""
    if number.bit_length() > _BITS:
        raise ValueError(f"a whole number of more than {MOST_DIGITS} digits")
    rest, pieces = abs(number), []
    while rest >= 10**_PIECE:
        rest, piece = divmod(rest, 10**_PIECE)
        pieces.append(f"{piece:0{_PIECE}d}")
    return "-" * (number < 0) + str(rest) + "".join(reversed(pieces))
