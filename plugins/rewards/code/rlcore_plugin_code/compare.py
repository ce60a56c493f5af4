r"""Is this the expected output? Pure, on bytes, in the host.

Both outputs are cut into tokens at ASCII white space (space, tab, line feed, carriage return, form feed, vertical tab; a no-break space is
part of a token), and the two sequences must be equal. How tokens are spread over lines does not count: problem sets were checked that way,
and a program gains nothing by it. Two tokens are equal where their bytes are; only where the expected one is a decimal fraction (``0.5``,
``1e-3``) any number within the tolerance will do. So integers are exact at any size, ``3.0``, ``+3`` and ``03`` are not ``3``, ``nan`` and
``inf`` equal only themselves, and text is text.

>>> same_output(b"1 0.333333\n", b"1\n0.33333333333\n", tolerance=1e-6)
True
>>> same_output(b"3\n", b"3.0\n", tolerance=1e-6)
False
"""

from __future__ import annotations

import math
import re

__all__ = ["same_output"]

_FRACTION = re.compile(rb"[+-]?+(?:[0-9]++\.[0-9]*+|\.[0-9]++|[0-9]++(?=[eE]))(?:[eE][+-]?+[0-9]++)?+")
_NUMBER = re.compile(rb"[+-]?+(?:[0-9]++(?:\.[0-9]*+)?+|\.[0-9]++)(?:[eE][+-]?+[0-9]++)?+")
_LONGEST = 400  # characters of a number that is compared as one; a double never needs more


def same_output(expected: bytes, actual: bytes, *, tolerance: float) -> bool:
    """True where the outputs have equal tokens; see the module. An expected output without tokens equals nothing."""
    wanted = expected.split()
    if not wanted:
        return False
    if expected == actual:
        return True
    found = actual.split(None, len(wanted))  # one token too many decides it: a flood is not cut to the end
    if len(found) != len(wanted):
        return False
    return wanted == found or all(w == f or _near(w, f, tolerance) for w, f in zip(wanted, found, strict=True))


def _near(wanted: bytes, found: bytes, tolerance: float) -> bool:
    if max(len(wanted), len(found)) > _LONGEST or not _FRACTION.fullmatch(wanted) or not _NUMBER.fullmatch(found):
        return False
    left, right = float(wanted), float(found)
    if not (math.isfinite(left) and math.isfinite(right)):
        return False
    return abs(left - right) <= tolerance * max(1.0, abs(left))
