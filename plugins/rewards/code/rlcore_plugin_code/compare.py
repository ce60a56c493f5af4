r"""Decides whether an output is the expected one. Pure, on bytes, in the host process.

Both outputs are split into tokens at ASCII white space (space, tab, line feed, carriage return, form feed, vertical tab; a no-break space
is part of a token), and the two sequences must be equal. The distribution of tokens over lines does not count: data sets were checked that
way, and a program gains nothing by it.

Two tokens are equal if their bytes are. Only if the expected token is a decimal fraction (``0.5``, ``1e-3``) is any number within the
tolerance accepted, and only in rows whose outputs are ``numeric``. Integers are therefore exact at any size, ``+3`` and ``03`` are not
``3``, ``nan`` and ``inf`` equal only themselves, and text is text. ``3.0`` is ``3`` only in a row that has ``fractions``: such a problem
asks for numbers with a point, and other languages print whole numbers without one. As a double it must be exactly that integer, below
2**53: no tolerance makes a count or an index equal to another.

>>> same_output(b"1 0.333333\n", b"1\n0.33333333333\n", tolerance=1e-6)
True
>>> same_output(b"3\n", b"3.0\n", tolerance=1e-6)
False
>>> same_output(b"3\n", b"3.0\n", tolerance=1e-6, fractions=True), same_output(b"3\n", b"3.0000001\n", tolerance=1e-6, fractions=True)
(True, False)
>>> numeric([b"Case 1: 0.5\n", b"-1\n"]), numeric([b"1.10\n", b"1.10.2\n"])
(True, False)
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable

__all__ = ["has_fractions", "near", "numeric", "same_output"]

# An exponent without a point is a number only in Python's form (1e-05, 2e+16): with a longer mantissa, or none, it is a word such as 12e4
# or 0e1.
_FRACTION = re.compile(rb"[+-]?+(?:[0-9]++\.[0-9]*+|\.[0-9]++|[1-9](?=[eE]))(?:[eE][+-]?+[0-9]++)?+")
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_INTEGER = re.compile(rb"0|-?+[1-9][0-9]*+")
_WHOLE = 1 << 53  # from here on not every whole number is a double
_POINT = re.compile(rb"[.eE]")
_DIGIT = re.compile(rb"[0-9]")
_LABEL = re.compile(rb"#?[0-9]+:")
_LONGEST = 400  # characters of a number that is compared as a number; a double never needs more


def numeric(outputs: Iterable[bytes]) -> bool:
    """Return whether fractions in these outputs, all outputs of a row, are numbers: every token with a digit is a number, or a label
    (``1:``). Otherwise an apparent fraction may be a version, a code or a piece of text, and is compared as text."""
    for output in outputs:
        for token in output.split():
            if _DIGIT.search(token) and not (_NUMBER.fullmatch(token) or _LABEL.fullmatch(token)):
                return False
    return True


def has_fractions(outputs: Iterable[bytes]) -> bool:
    """Return whether one of these outputs, all outputs of a row, contains a decimal fraction."""
    return any(_FRACTION.fullmatch(token) for output in outputs if _POINT.search(output) for token in output.split())


def same_output(
    expected: bytes, actual: bytes, *, tolerance: float, relative: float | None = None, numbers: bool = True, fractions: bool = False
) -> bool:
    """Return whether the outputs have equal tokens; see the module. ``tolerance``: absolute, and relative unless ``relative`` is given;
    ``numbers``, ``fractions``: whether the row is ``numeric``, and has some. An expected output without tokens equals nothing."""
    wanted = expected.split()
    if not wanted:
        return False
    if expected == actual:
        return True
    found = actual.split(None, len(wanted))  # one extra token decides it, so a huge output is not split to the end
    if len(found) != len(wanted):
        return False
    if wanted == found:
        return True
    ratio = tolerance if relative is None else relative
    return numbers and all(
        w == f or _near(w, f, tolerance, ratio) or (fractions and _whole(w, f)) for w, f in zip(wanted, found, strict=True)
    )


def _near(wanted: bytes, found: bytes, absolute: float, relative: float) -> bool:
    if max(len(wanted), len(found)) > _LONGEST or not _FRACTION.fullmatch(wanted) or not _NUMBER.fullmatch(found):
        return False
    return near(float(wanted), float(found), absolute, relative)


def _whole(wanted: bytes, found: bytes) -> bool:
    """Return whether an integer is expected, and the other is a fraction whose double is exactly that integer."""
    if len(found) > _LONGEST or len(wanted) > len(str(_WHOLE)) + 1 or not _INTEGER.fullmatch(wanted) or not _FRACTION.fullmatch(found):
        return False
    number = int(wanted)
    return abs(number) < _WHOLE and float(found) == number


def near(wanted: float, found: float, absolute: float, relative: float) -> bool:
    """Return whether two finite numbers are within the larger of the two errors; the relative one is a share of the expected number."""
    if not (math.isfinite(wanted) and math.isfinite(found)):
        return False
    return abs(wanted - found) <= max(absolute, relative * abs(wanted))
