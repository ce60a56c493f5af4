"""Two rewards on the same rows: how often they agree, and where they do not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import groupby, zip_longest
from typing import Any

from rlcore_plugin_tools.score.items import TextVerdict
from rlcore_plugin_tools.score.verdict_kinds import Answer, answer_of

__all__ = ["Agreement", "paired"]

_NAMED = 100


class Agreement:
    """The verdicts of a reward compared with those of another, ``other``."""

    def __init__(self, name: str, other: str) -> None:
        self.name, self.other = name, other
        self.counts: Counter[tuple[Answer, Answer]] = Counter()
        self.different: list[dict[str, Any]] = []

    def add(self, verdict: TextVerdict, against: TextVerdict) -> bool:
        """Count a completion; return whether both give the same answer."""
        mine, theirs = answer_of(verdict.score), answer_of(against.score)
        self.counts[mine, theirs] += 1
        if mine is not theirs and len(self.different) < _NAMED:
            self.different.append(
                {
                    "line": verdict.line,
                    "completion": verdict.place if verdict.place is not None else against.place,
                    "id": verdict.row_id,
                    "reward": _said(verdict, mine),
                    "against": _said(against, theirs),
                }
            )
        return mine is theirs

    @property
    def agreed(self) -> int:
        """The number of completions on which both agree."""
        return sum(count for (mine, theirs), count in self.counts.items() if mine is theirs)

    def as_json(self) -> dict[str, Any]:
        """Return the table (rows: this reward, columns: the other one) and the first rows where they differ."""
        total = sum(self.counts.values())
        kinds = [kind for kind in Answer if any(kind in pair for pair in self.counts)]
        table = {mine.value: {theirs.value: self.counts[mine, theirs] for theirs in kinds} for mine in kinds}
        return {
            "reward": self.name,
            "against": self.other,
            "completions": total,
            "agree": self.agreed,
            "differ": total - self.agreed,
            "table": table,
            "different": list(self.different),
        }


def _said(verdict: TextVerdict, answer: Answer) -> dict[str, Any]:
    score = verdict.score
    value = score.value if verdict.counts else None
    return {"answer": answer.value, "value": value, "ans_acc": score.accuracy, "parsed": score.parsed, "reason": score.reason}


def paired(first: Iterable[TextVerdict], second: Iterable[TextVerdict]) -> Iterator[tuple[TextVerdict, TextVerdict]]:
    """Yield pairs of verdicts of two scorers on the same rows, completion by completion. If one of them cannot judge a row, its only
    verdict is paired with each of the other's."""
    for (_, mine), (_, theirs) in zip(groupby(first, _line), groupby(second, _line), strict=True):
        one, other = list(mine), list(theirs)
        yield from zip_longest(one, other, fillvalue=one[0] if len(one) < len(other) else other[0])


def _line(verdict: TextVerdict) -> int:
    return verdict.line
