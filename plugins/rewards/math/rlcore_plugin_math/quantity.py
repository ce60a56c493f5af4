r"""Plain numbers, exactly: everything that fractions can decide is decided here, without a computer algebra system.

>>> quantity("1,000").value
Fraction(1000, 1)
>>> sequence("8 3 1 6")
(Fraction(8, 1), Fraction(3, 1), Fraction(1, 1), Fraction(6, 1))
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from math import gcd

from rlcore_plugin_math.nouns import may_be_omitted
from rlcore_plugin_math.tolerance import EXACT, Tolerance
from rlcore_plugin_math.units import conversion, split_unit

__all__ = [
    "ClockReading",
    "Quantity",
    "bases_equal",
    "clock",
    "comma_sequence",
    "in_base",
    "quantity",
    "same_clock",
    "same_groups",
    "same_quantity",
]
__all__ += ["sequence", "unit_missing"]

_MOST_DIGITS = 400  # longer ones are never honest; int() of a very long string is quadratic
_MOST_EXPONENT = 400
_ROUNDING = Fraction(1, 10**14)  # relative; decimals only: the noise of one double precision operation

_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?:\.[0-9]+)?|[1-9][0-9]{0,2}(?: [0-9]{3})+(?:\.[0-9]+)?")
_DECIMAL = r"(?:[0-9]++(?:\.[0-9]*+)?|\.[0-9]++)"
_POWER = re.compile(rf"(?:({_DECIMAL}) ?(?:\\times|\\cdot|\*|x) ?)?10\^(?:\{{([+-]?[0-9]+)\}}|([0-9]{{1,3}}))")
_SCIENTIFIC = re.compile(rf"({_DECIMAL})[eE]([+-]?[0-9]+)")
_REPEATING = re.compile(r"([0-9]*)\.([0-9]*) ?\\overline ?\{([0-9]+)\}")
_REMAINDER = re.compile(r"([0-9]+) ?\\bmod ?(?:([0-9]+)|\{([0-9]+)\})")
_NUMBER = re.compile(_DECIMAL)
_RATIO = re.compile(rf"(?:\\frac\{{([+-]?{_DECIMAL})\}}\{{([+-]?{_DECIMAL})\}}|([0-9]+) ?/ ?([0-9]+))")
_MIXED = re.compile(r"([0-9]+) ?(?:\\frac\{([0-9]+)\}\{([0-9]+)\}|(?<= )([0-9]+) ?/ ?([0-9]+))")
_BASE = re.compile(r"\(?(-?[0-9A-Za-z]+(?:\.[0-9A-Za-z]+)?)\)?_(?:\{(?:\\text\{)?([0-9]{1,2}|[a-z]+)\}?\}|([0-9]))")
_BASE_WORDS = {"two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7", "eight": "8", "nine": "9", "ten": "10"}
_CLOCK = re.compile(r"([0-9]{1,9}(?: ?: ?[0-9]{1,9})+)(?: ?(?:\\text ?\{ ?)?([aApP])\.? ?[mM]\.?(?: ?\})?)?")
_NUMBER_NOUNS = {"dozen": 12, "score": 20, "gross": 144, "hundred": 100, "thousand": 1000, "grand": 1000}
_NUMBER_NOUNS |= {"million": 10**6, "billion": 10**9, "trillion": 10**12}
_NAMED = re.compile(rf"({_DECIMAL}|[0-9]{{1,3}}(?:,[0-9]{{3}})+) ?(?:\\text ?\{{ ?)?({'|'.join(_NUMBER_NOUNS)})(?: ?\}})?")
_GROUP = re.compile(r"0[0-9]{2}")
_ITEM = re.compile(rf"[+-]?(?:{_DECIMAL}|[0-9]+/[0-9]+)")


_NOTHING, _HUNDREDTH = Fraction(0), Fraction(1, 100)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number. ``decimal``: it was written with a point; ``unit``: "%" for per cent, "" for none; ``step``: the last place of a decimal
    (1/100 for 3.14), 0 for any other."""

    value: Fraction
    decimal: bool = False
    unit: str = ""
    step: Fraction = _NOTHING

    def times(self, factor: Fraction) -> Quantity:
        """Return it multiplied by a factor, without its unit."""
        return Quantity(self.value * factor, self.decimal, "", self.step * factor)


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity | None:
    """Return the number that a normalised text is, with its unit; None for anything else."""
    bare = _unsigned(text)
    if bare is not None:
        return bare
    body, unit = split_unit(text)
    number = _unsigned(body) if unit else None
    return Quantity(number.value, number.decimal, unit, number.step) if number is not None else None


def _unsigned(text: str) -> Quantity | None:
    sign = 1
    while text[:1] in ("+", "-"):
        sign, text = (-sign if text[0] == "-" else sign), text[1:].lstrip()
    while text[:1] in ("(", "{") and text[-1:] == {"(": ")", "{": "}"}[text[0]] and _NUMBER.fullmatch(text[1:-1].strip()):
        text = text[1:-1].strip()
    number = _magnitude(text)
    if number is None or sign > 0:
        return number
    return Quantity(-number.value, number.decimal, "", number.step)


def _magnitude(text: str) -> Quantity | None:
    if not text or len(text) > _MOST_DIGITS:
        return None
    if _GROUPED.fullmatch(text):
        text = text.replace(",", "").replace(" ", "")
    if _NUMBER.fullmatch(text):
        return _decimal(text.rstrip("."))
    if match := _REPEATING.fullmatch(text):
        return _repeating(match[1], match[2], match[3])
    if match := _REMAINDER.fullmatch(text):
        divisor = int(match[2] or match[3])
        return Quantity(Fraction(int(match[1]) % divisor)) if divisor else None
    if match := _NAMED.fullmatch(text):
        return _decimal(match[1].replace(",", ""), Fraction(_NUMBER_NOUNS[match[2]]))
    if match := _SCIENTIFIC.fullmatch(text):
        return _scaled(match[1], match[2])
    if match := _POWER.fullmatch(text):
        return _scaled(match[1] or "1", match[2] or match[3])
    if match := _MIXED.fullmatch(text):
        return _mixed(match[1], match[2] or match[4], match[3] or match[5])
    if match := _RATIO.fullmatch(text):
        over, under = (match[1], match[2]) if match[1] else (match[3], match[4])
        return _divided(over, under)
    return None


def _decimal(digits: str, scale: Fraction | None = None) -> Quantity:
    places = len(digits.partition(".")[2])
    step = Fraction(1, 10**places) if places else _NOTHING
    found = Quantity(Fraction(digits), "." in digits, "", step)
    return found if scale is None else found.times(scale)


def _repeating(whole: str, once: str, again: str) -> Quantity:
    """Return the exact value: the repeated digits over as many nines, shifted by the number of digits before them."""
    nines = 10 ** len(again) - 1
    return Quantity(Fraction(int(whole + once or "0") * nines + int(again), nines * 10 ** len(once)))


def _scaled(digits: str, exponent: str) -> Quantity | None:
    if len(exponent) > 5 or abs(int(exponent)) > _MOST_EXPONENT:
        return None
    return _decimal(digits, Fraction(10) ** int(exponent))


def _mixed(whole: str, over: str, under: str) -> Quantity | None:
    if int(under) == 0 or int(over) >= int(under):
        return None
    return Quantity(int(whole) + Fraction(int(over), int(under)))


def _divided(over: str, under: str) -> Quantity | None:
    if Fraction(under) == 0:
        return None
    return Quantity(Fraction(over) / Fraction(under), "." in over + under)


# --- comparing ---------------------------------------------------------------------------------------------------------


def _same_value(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> bool:
    """Return whether the values are equal: exactly; up to the last places of a double if both were written as decimals and the gold one is
    not a whole number; up to a requested tolerance."""
    if gold.value == answer.value or (tolerance and tolerance.near(gold.value, answer.value, step=gold.step)):
        return True
    if not (gold.decimal and answer.decimal) or gold.value.denominator == 1:
        return False
    return abs(gold.value - answer.value) <= _ROUNDING * max(abs(gold.value), abs(answer.value))


def unit_missing(gold: str, answer: str, *, accepted: bool) -> bool:
    """Return whether one of two units is missing and must not be. ``accepted``: units may be missing, unless they may be numbers."""
    return bool(gold) is not bool(answer) and not (accepted and may_be_omitted(gold or answer))


def same_quantity(
    gold: Quantity, answer: Quantity, *, strict: bool, tolerance: Tolerance = EXACT, unit_omitted: bool | None = None
) -> bool:
    """Return whether values and units agree. A unit may be omitted, but may differ only if both measure the same thing. 50 % is 50 and 0.5,
    but a bare 0.5 in the gold answer is neither 50 nor 0.5 %. ``strict``: the same unit, exactly the same value. ``unit_omitted``: whether
    one side may lack the unit; None: only if not ``strict``."""
    accepted = not strict if unit_omitted is None else unit_omitted
    if unit_missing(gold.unit, answer.unit, accepted=accepted):
        return _is_percentage(gold, answer, tolerance) if not strict else False
    if strict and bool(gold.unit) is not bool(answer.unit) and "%" not in (gold.unit, answer.unit):
        answer = Quantity(answer.value, answer.decimal, gold.unit, answer.step)
    if strict:
        near = bool(tolerance) and tolerance.near(gold.value, answer.value, step=gold.step)
        return gold.unit == answer.unit and (gold.value == answer.value or near)
    if gold.unit and answer.unit and gold.unit != answer.unit:
        factor = conversion(answer.unit, gold.unit)
        return factor is not None and _same_value(gold, answer.times(factor), tolerance)
    if answer.unit == "%" and not gold.unit and 0 < abs(gold.value) < 1:
        return _same_value(gold, answer.times(_HUNDREDTH), tolerance)
    if _same_value(gold, answer, tolerance):
        return True
    if gold.unit == "%" and not answer.unit:
        return _same_value(gold.times(_HUNDREDTH), answer, tolerance)
    if answer.unit == "%" and not gold.unit and abs(gold.value) == 1:
        return _same_value(gold, answer.times(_HUNDREDTH), tolerance)
    return False


def _is_percentage(gold: Quantity, answer: Quantity, tolerance: Tolerance) -> bool:
    """Return whether one side is the other's per cent sign written out: 50 % is 0.5."""
    if gold.unit == "%":
        return _same_value(gold.times(_HUNDREDTH), answer, tolerance)
    return answer.unit == "%" and 0 < abs(gold.value) <= 1 and _same_value(gold, answer.times(_HUNDREDTH), tolerance)


def sequence(text: str) -> tuple[Fraction, ...] | None:
    """Return two or more numbers separated by white space; None for anything else, including thousands groups and mixed numbers."""
    pieces = text.split()
    if len(pieces) < 2 or not all(_ITEM.fullmatch(piece) for piece in pieces):
        return None
    bare = " ".join(pieces).lstrip("+-")
    if _GROUPED.fullmatch(bare) or _MIXED.fullmatch(bare):
        return None
    return _fractions(pieces)


def comma_sequence(text: str) -> tuple[Fraction, ...] | None:
    """Return numbers separated by commas, only for comparison with a sequence, since alone they may also be a set of solutions."""
    pieces = [piece.strip() for piece in text.split(",")]
    return _fractions(pieces) if all(_ITEM.fullmatch(piece) for piece in pieces) else None


def _fractions(pieces: list[str]) -> tuple[Fraction, ...] | None:
    if any(len(piece) > _MOST_DIGITS for piece in pieces):
        return ()
    try:
        return tuple(Fraction(piece) for piece in pieces)
    except ZeroDivisionError:
        return ()


def in_base(text: str) -> tuple[str, str] | None:
    """Return (digits, base) of ``1011_2``; None for anything else."""
    match = _BASE.fullmatch(text)
    if match is None:
        return None
    base = match[2] or match[3]
    base = _BASE_WORDS.get(base, base)
    if not base.isdigit() or not any(sign.isdigit() for sign in match[1]):
        return None
    return match[1].upper(), base


def bases_equal(gold: tuple[str, str], answer: tuple[str, str]) -> bool:
    """Return whether base and digits are equal; leading zeros are ignored."""
    return gold[1] == answer[1] and gold[0].lstrip("0") == answer[0].lstrip("0")


def same_groups(gold: str, answer: str) -> bool:
    """Return False for ``000`` and ``0``: in ``(1,000)`` the first may be a group of thousands, the second cannot."""
    return gold == answer or not (_GROUP.fullmatch(gold) or _GROUP.fullmatch(answer))


@dataclass(frozen=True, slots=True)
class ClockReading:
    """Numbers separated by colons, a time or a ratio. ``half`` of the day: "a", "p" or "". ``timed``: 2 if it can only be a time (``9:05``,
    ``3:45 pm``), 1 if it may be one (``10:15``), else 0."""

    numbers: tuple[int, ...]
    half: str
    timed: int


def clock(text: str) -> ClockReading | None:
    """Return the time or ratio that a normalised text is; None for anything else."""
    match = _CLOCK.fullmatch(text)
    if match is None:
        return None
    parts = [part.strip() for part in match[1].split(":")]
    numbers = tuple(int(part) for part in parts)
    may_be = numbers[0] < 24 and all(len(part) == 2 and number < 60 for part, number in zip(parts[1:], numbers[1:], strict=True))
    must_be = bool(match[2]) or not all(numbers) or any(part.startswith("0") for part in parts)
    return ClockReading(numbers, (match[2] or "").lower(), 2 if must_be else int(may_be))


def same_clock(gold: ClockReading, answer: ClockReading) -> bool:
    """Return whether the numbers are the same. The half of the day may be omitted but must not differ. Numbers that are not a time are a
    ratio: ``2:3`` is ``4:6``."""
    if gold.numbers == answer.numbers:
        return gold.half == answer.half or not (gold.half and answer.half)
    if gold.timed and answer.timed:
        return _of_day(gold) == _of_day(answer)
    if gold.timed + answer.timed > 1 or (gold.timed and gcd(*gold.numbers) > 1):
        return False
    return _lowest(gold.numbers) == _lowest(answer.numbers)


def _of_day(time: ClockReading) -> tuple[int, ...]:
    """Return hours of 24, without seconds that are 0."""
    hours, *rest = time.numbers
    hours = hours % 12 + (12 if time.half == "p" else 0) if time.half else hours
    return (hours, *(rest[:-1] if len(rest) > 1 and rest[-1] == 0 else rest))


def _lowest(numbers: tuple[int, ...]) -> tuple[int, ...]:
    divisor = gcd(*numbers)
    return tuple(number // divisor for number in numbers)
