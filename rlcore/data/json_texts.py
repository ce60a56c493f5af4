"""JSON in columns, places in a row, and whole numbers of many digits. This module does not know files or the meaning of a row."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

__all__ = ["MOST_DIGITS", "number_text", "opened_text", "place_in", "whole_number"]

MOST_DIGITS = 50_000
"""The most digits of a whole number, as in judges of programs (LiveCodeBench)."""
_PIECE = 4000
"""Digits that Python converts at once. Its limit, 4300 by default, belongs to the whole process and stays as it is."""


def whole_number(text: str) -> int:
    """Return the number in decimal digits, with or without a minus sign. ValueError if it has more than ``MOST_DIGITS`` digits.

    >>> whole_number("-" + "7" * 5000) == -7 * (10**5000 - 1) // 9
    True
    """
    digits = text.removeprefix("-")
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits)} digits, and {MOST_DIGITS} are the limit")
    value = 0
    for start in range(0, len(digits), _PIECE):
        piece = digits[start : start + _PIECE]
        value = value * 10 ** len(piece) + int(piece)
    return -value if text.startswith("-") else value


def number_text(number: float) -> str:
    """Return a number as Python writes it, a whole number of many digits too.

    >>> number_text(-(10**5000)) == "-1" + "0" * 5000, number_text(2.5)
    (True, '2.5')
    """
    try:
        return str(number)
    except ValueError:  # a whole number of more digits than Python writes
        rest, pieces = abs(int(number)), list[str]()
    while rest >= 10**_PIECE:
        rest, piece = divmod(rest, 10**_PIECE)
        pieces.append(f"{piece:0{_PIECE}d}")
    return "-" * (number < 0) + str(rest) + "".join(reversed(pieces))


def opened_text(value: Any) -> Any:
    """Return the object or the list that a text holds as JSON, and any other value unchanged.

    >>> opened_text('{"ground_truth": "5"}'), opened_text("5")
    ({'ground_truth': '5'}, '5')
    """
    if not isinstance(value, str) or not value.lstrip().startswith(("{", "[")):
        return value
    try:
        return json.loads(value, parse_int=whole_number)
    except (ValueError, RecursionError):
        return value


def place_in(row: Mapping[Any, Any], path: str) -> tuple[bool, Any]:
    """Return whether the row has the column ``path``, or the place inside an object or a list in a column, and its value. An object or a
    list may be JSON in a text.

    >>> place_in({"info": '{"answers": [3, 4]}'}, "info.answers.1")
    (True, 4)
    """
    if path in row:
        return True, row[path]
    value: Any = row
    for part in path.split("."):
        value = opened_text(value)
        if isinstance(value, Mapping) and part in value:
            value = value[part]
        elif isinstance(value, list | tuple) and part.isdecimal() and int(part) < len(value):
            value = value[int(part)]
        else:
            return False, None
    return True, value
