"""The bad rows that ``--bad-rows drop`` leaves out: where each is, and how many there are for each reason."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

__all__ = ["LeftOut", "by_reason", "left_out_sentences"]

_MOST_REASONS = 20
"""Reasons that are counted apart; the others are counted together."""
_SHOWN = 5
"""Reasons in the sentence for a person."""
_OTHERS = "other reasons"
_NUMBERS = re.compile(r"\d+")
_SHOWN_VALUE = re.compile(r"'(?:[^'\\]|\\.)*'")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A bad row: the path of its data set as typed, its number, and the reason."""

    file: str
    row: int
    reason: str

    @property
    def place(self) -> str:
        """The source of the prompt that it would have become."""
        return f"{self.file}:{self.row}"


def by_reason(rows: Iterable[LeftOut]) -> dict[str, int]:
    """Return how many rows were left out for each kind of reason, the most frequent first.

    The kind of a reason has neither its advice nor the numbers and values of the row."""
    counts = Counter(_kind(row.reason) for row in rows)
    kinds = counts.most_common(_MOST_REASONS)
    others = counts.total() - sum(count for _, count in kinds)
    return {**dict(kinds), **({_OTHERS: others} if others else {})}


def _kind(reason: str) -> str:
    said = reason.partition("; ")[0].partition(" (")[0]
    return _NUMBERS.sub("…", _SHOWN_VALUE.sub("'…'", said))


def left_out_sentences(counts: Mapping[str, Mapping[str, int]], sizes: Mapping[str, int]) -> list[str]:
    """Return a sentence for each data set that rows are left out of.

    :param counts: data set -> reason -> number of rows.
    :param sizes: data set -> number of rows that remain."""
    return [_sentence(name, reasons, sizes.get(name, 0)) for name, reasons in counts.items() if reasons]


def _sentence(name: str, reasons: Mapping[str, int], remaining: int) -> str:
    total = sum(reasons.values())
    named = [f"{count} × {reason}" for reason, count in list(reasons.items())[:_SHOWN]]
    more = len(reasons) - _SHOWN
    what = "1 row is bad and is" if total == 1 else f"{total} rows are bad and are"
    kinds = "; ".join([*named, *([f"and {more} more reasons"] if more > 0 else [])])
    return f"{name}: {what} left out, {remaining} remain (--bad-rows drop): {kinds}"
