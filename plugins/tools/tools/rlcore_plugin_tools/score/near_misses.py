"""Answers that are nearly right: off by one, another digit, sign, unit or order, within a tolerance; and dumps that contain the right one
among everything else.

Each replaces the gold answer in an honest completion. ``expected`` is False if it is wrong whatever the task allows, and None if fair
rewards differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal

__all__ = ["NearMiss", "dumps_of", "near_misses", "query_dump"]

_NUMBER = re.compile(r"-?\d{1,15}(\.\d{1,12})?")
_FRACTION = re.compile(r"(\\[dt]?frac\{)(-?\d{1,9})(\}\{)(\d{1,9})(\})|()(-?\d{1,9})(/)(\d{1,9})()")
_UNIT = re.compile(r"(-?[\d.]{1,16})(\s*(?:\\text\{)?\s*)(cm|mm|km|m|kg|g|s|h|min|ml|l|°|\\circ|%|\\%)(\}?)")
_ORDERED = re.compile(r"\(([^(),]{1,40}(?:,[^(),]{1,40}){1,5})\)")
_OTHER_UNIT = {"cm": "km", "mm": "m", "km": "m", "m": "km", "kg": "g", "g": "kg", "s": "h", "h": "s", "min": "s", "ml": "l", "l": "ml"}
_QUERY = re.compile(r"\bselect\b(?P<columns>[^;`]{1,400}?)\bfrom\s+(?P<table>[\w.\"]+)[^;`]{0,2000}", re.IGNORECASE)
_CHOOSES = re.compile(r"\b(where|group\s+by|having|limit|join|distinct|count|sum|avg|min|max)\b", re.IGNORECASE)
_CHOICES = (("A", "B", "C", "D", "E"), ("true", "false"), ("yes", "no"))


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A replacement for the right answer."""

    name: str
    answer: str
    expected: bool | None
    note: str


def near_misses(gold: str) -> Iterator[NearMiss]:
    """Yield near misses of a number, a fraction, a value with a unit, an ordered list or a choice; none for other answers."""
    if _NUMBER.fullmatch(gold):
        yield from _of_number(gold)
    elif fraction := _FRACTION.fullmatch(gold):
        yield from _of_fraction([part for part in fraction.groups() if part is not None])
    elif unit := _UNIT.fullmatch(gold):
        yield from _of_unit(*unit.groups())
    elif listed := _ORDERED.fullmatch(gold):
        parts = [part.strip() for part in listed[1].split(",")]
        if parts != parts[::-1]:
            yield NearMiss("other order", f"({', '.join(reversed(parts))})", False, "an ordered list, backwards")
            yield NearMiss("one missing", f"({', '.join(parts[:-1])})", False, "the last of a list left out")
    else:
        for choices in _CHOICES:
            if gold in choices:
                yield NearMiss("another choice", choices[(choices.index(gold) + 1) % len(choices)], False, "the next one")


def _of_number(gold: str) -> Iterator[NearMiss]:
    value, whole = Decimal(gold), "." not in gold
    for name, step in (("one more", 1), ("one less", -1)):
        yield NearMiss(name, str(value + step), False, "finds a reward that tolerates ±1")
    yield NearMiss("a half more", str(value + Decimal("0.5")), False, "finds a reward that rounds")
    digits = gold.lstrip("-")
    if value:
        yield NearMiss("other sign", str(-value), False, "the sign is flipped")
        yield NearMiss("ten times", str(value * 10), False, "a digit too many")
    for name, digit in _off_by_a_digit(digits):
        yield NearMiss(name, ("-" if value < 0 else "") + digit, False, "one digit is another, or two changed places")
    if abs(value) >= 10:
        yield NearMiss("a tenth more", str(value + value / 10), False, "finds a relative tolerance of 10 %")
    if not whole:
        yield NearMiss("one more in the last place", str(value + Decimal(1).scaleb(_places(value))), None, "within many tolerances")
        yield NearMiss("rounded", str(value.quantize(Decimal(1))), None, "without the digits after the point")
    yield NearMiss("in percent", f"{gold}%", None, "a unit that was not asked for")
    yield NearMiss("with a unit", f"{gold} kg", None, "a unit that was not asked for")


def _places(value: Decimal) -> int:
    exponent = value.as_tuple().exponent
    return exponent if isinstance(exponent, int) else 0


def _off_by_a_digit(digits: str) -> Iterator[tuple[str, str]]:
    if (first := digits[0]).isdigit():
        yield "first digit is another", f"{(int(first) + 4) % 9 + 1}{digits[1:]}"
    whole = digits.partition(".")[0]
    swapped = next((i for i in range(len(whole) - 1) if whole[i] != whole[i + 1] and (whole[i + 1] != "0" or i)), None)
    if swapped is not None:
        yield "two digits swapped", digits[:swapped] + digits[swapped + 1] + digits[swapped] + digits[swapped + 2 :]
    if len(whole) > 1:
        yield "a digit too few", digits[1:] if digits[1] != "0" else digits[: len(whole) - 1] + digits[len(whole) :]


def _of_fraction(parts: list[str]) -> Iterator[NearMiss]:
    before, over, between, under, after = parts
    yield NearMiss("numerator one more", f"{before}{int(over) + 1}{between}{under}{after}", False, "finds a reward that tolerates ±1")
    if int(over) and abs(int(over)) != int(under):
        sign = "-" if int(over) < 0 else ""
        yield NearMiss("upside down", f"{sign}{before}{under}{between}{abs(int(over))}{after}", False, "its inverse")
        yield NearMiss("other sign", f"{before}{-int(over)}{between}{under}{after}", False, "the sign is flipped")
    if int(under):
        yield NearMiss("as a decimal", f"{int(over) / int(under):.2f}", None, "rounded to two digits")


def _of_unit(number: str, gap: str, unit: str, after: str) -> Iterator[NearMiss]:
    other = _OTHER_UNIT.get(unit)
    if other is not None:
        yield NearMiss("another unit", f"{number}{gap}{other}{after}", False, "the number is right")
    yield NearMiss("its unit left out", number, None, "the number is right")
    if _NUMBER.fullmatch(number):
        yield NearMiss("one more", f"{Decimal(number) + 1}{gap}{unit}{after}", False, "finds a reward that tolerates ±1")


def dumps_of(gold: str) -> Iterator[NearMiss]:
    """Yield many answers at once, with the right one among them."""
    for choices in _CHOICES:
        if gold in choices:
            yield NearMiss("every choice", ", ".join(choices), False, "the right one among them")
    if _NUMBER.fullmatch(gold) and "." not in gold:
        first = min(int(gold), 0) - 5
        if int(gold) - first < 2_000:
            yield NearMiss("every number up to it", " ".join(map(str, range(first, int(gold) + 6))), False, "the right one among them")
    yield NearMiss("the answer or others", f"{gold} or 1 or 0 or -1 or 2", False, "four more, in case")
    yield NearMiss("SELECT *", "SELECT *", False, "a query for everything")


def query_dump(text: str) -> tuple[str, bool | None] | None:
    """Return a completion in which ``SELECT * FROM`` its table replaces the SQL query, and the verdict that a fair reward gives: False if
    the query chose among the rows, else None. Return None if there is no query, or if it asks for everything itself."""
    query = _QUERY.search(text)
    if query is None or query["columns"].strip() == "*":
        return None
    chooses = _CHOOSES.search(query[0]) is not None
    return f"{text[: query.start()]}SELECT * FROM {query['table']}{text[query.end() :]}", False if chooses else None
