r"""Answers to a question of several parts, ``(a) 3 (b) 4``: values with labels, never a product of letters and numbers.

>>> labelled_parts(r"\text{(i) } 3, \text{(ii) } 4")
('3', '4')
"""

from __future__ import annotations

import re

__all__ = ["labelled_parts"]

_SERIES = (tuple("abcdefgh"), ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii"), tuple("12345678"))
_WORDED = re.compile(r"\\text ?\{ ?(\(?(?:[a-h]|[ivx]{1,4}|[1-8])\)) ?\}")
_MARK = re.compile(r"(?:(?<=^)|(?<=[\s,;.]))\(?([a-h]|[ivx]{1,4}|[1-8])\)")
_BETWEEN = re.compile(r"(?:[\s,;]|\\text ?\{ ?and ?\}|\band)*$")


def labelled_parts(text: str) -> tuple[str, ...] | None:
    """Return the values of the parts in the order of their labels (a, b, …; i, ii, …; 1, 2, …, without gaps); None for anything else."""
    if ")" not in text:
        return None
    text = _WORDED.sub(r"\1 ", text)
    marks = list(_MARK.finditer(text))
    if len(marks) < 2 or marks[0].start() != 0:
        return None
    ends = [mark.start() for mark in marks[1:]] + [len(text)]
    found = {mark[1]: _BETWEEN.sub("", text[mark.end() : end]).lstrip(" :=.") for mark, end in zip(marks, ends, strict=True)}
    series = next((series for series in _SERIES if sorted(found) == sorted(series[: len(marks)])), None)
    if series is None or not all(found.values()):
        return None
    return tuple(found[label] for label in series[: len(marks)])
