"""What is judged and what comes of it: one prompt with its completions in, one verdict a completion out. Reads the rows of a file."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any

from rlcore.api import FinishReason, Message, Outcome, Score
from rlcore.api.commands import Registry, RunConfig
from rlcore.api.data import BadRow, Routes, parse_row, read_rows

__all__ = ["Item", "RowsToJudge", "TextVerdict", "read_items", "verdict_of"]

_OWN = ("completion", "finish")
"""Columns of a row that are no part of its data row."""
_FINISHES = (FinishReason.STOP.value, FinishReason.LENGTH.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A prompt and the texts to judge; a reward that judges groups sees all of them at once.

    ``line``: its line in the file, from 1. ``several``: the row held a list of completions, so each verdict names its place in
    it. ``refused``: why it cannot be judged, "" if it can. ``reward``: the one reward that the row asks for, None for all.
    ``row_id``: its ``id``, as it stands there.
    """

    line: int
    source: str = ""
    messages: tuple[Message, ...] = ()
    columns: Mapping[str, Any] = field(default_factory=dict)
    texts: tuple[str, ...] = ()
    finish: FinishReason = FinishReason.STOP
    reward: str | None = None
    several: bool = False
    refused: str = ""
    row_id: str | int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TextVerdict:
    """The mixed score of one completion. ``seconds``: in the rewards, waiting excluded; None if none was asked. ``place``: of the
    completion in its row, from 0; None if the row has one. ``trace``: the traceback if the reward's own code raised, else ""."""

    line: int
    source: str
    score: Score
    seconds: float | None = None
    place: int | None = None
    trace: str = ""
    row_id: str | int | None = None

    @property
    def counts(self) -> bool:
        """Whether it says something of the text: a reward may also say that it does not apply, which counts nowhere."""
        return self.score.outcome.judged and (self.score.in_statistics or self.score.in_loss)

    def as_row(self) -> dict[str, Any]:
        """One row of a result file. What was not judged has no value: null, never 0."""
        score = self.score
        judged = self.counts
        return {
            "line": self.line,
            **({} if self.row_id is None else {"id": self.row_id}),
            **({} if self.place is None else {"completion": self.place}),
            "value": score.value if judged else None,
            "format_acc": None if score.format_ok is None else float(score.format_ok),
            "ans_acc": score.accuracy,
            "outcome": score.outcome.value,
            "reason": score.reason,
            "parsed": score.parsed,
            "parts": dict(score.parts),
            "seconds": None if self.seconds is None else round(self.seconds, 6),
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class RowsToJudge:
    """A data set to judge, as typed (a file, a folder, ``hf:NAME``), and how its rows are read: ``config.data`` names format and columns.
    ``say``: told once which row format was found."""

    path: str
    registry: Registry
    config: RunConfig
    say: Callable[[str], None] = lambda line: None


def verdict_of(row: Mapping[str, Any], source: str) -> TextVerdict:
    """The verdict that ``as_row`` made a row of; ``source``: the file that was judged. Its traceback is not in the row."""
    outcome = Outcome(row["outcome"])
    format_ok = row.get("format_acc")
    score = Score(
        value=0.0 if row["value"] is None else float(row["value"]),
        accuracy=row.get("ans_acc"),
        format_ok=None if format_ok is None else bool(format_ok),
        parts=row.get("parts") or {},
        outcome=outcome,
        reason=str(row.get("reason") or ""),
        parsed=row.get("parsed"),
        in_statistics=row["value"] is not None,
        in_loss=row["value"] is not None,
    )
    place = row.get("completion")
    return TextVerdict(
        line=row["line"], source=f"{source}:{row['line']}", score=score, seconds=row.get("seconds"), place=place, row_id=row.get("id")
    )


def read_items(file: RowsToJudge, routes: Routes, limit: int | None = None, *, needs_completion: bool = True) -> Iterator[Item]:
    """The rows of a data set, one after the other, at most ``limit`` of them; a bad one comes out refused, with its reason.

    Without ``needs_completion`` a row that has none is an item without texts.

    :raises DataError: there is no such data set, or it cannot be read at all.
    """
    return islice(_items(file, routes, needs_completion), limit)


def _items(file: RowsToJudge, routes: Routes, needs_completion: bool) -> Iterator[Item]:
    rows = read_rows(file.path, file.registry, file.config.data, beside=_OWN, say=file.say)
    for index, (line, row) in enumerate(rows):
        source = f"{file.path}:{line}"
        try:
            item = _item(row, line, source, index, routes)
            if needs_completion and not item.texts:
                raise BadRow('the row has no "completion"; put the text to judge there')
            yield item
        except BadRow as bad:
            yield Item(line=line, source=source, refused=f"{source}: {bad}", row_id=_id_of(row))


def _item(row: object, line: int, source: str, index: int, routes: Routes) -> Item:
    if isinstance(row, BadRow):
        raise row
    rest = {key: value for key, value in row.items() if key not in _OWN} if isinstance(row, Mapping) else row
    prompt = parse_row(rest, index=index, default_id=source, source=source, routes=routes)
    assert isinstance(row, Mapping)  # parse_row takes nothing else
    texts = _texts(row.get("completion"))
    return Item(
        line=line,
        source=source,
        messages=prompt.messages,
        columns=prompt.columns,
        texts=texts,
        finish=_finish(row.get("finish")),
        reward=prompt.reward,
        several=isinstance(row.get("completion"), list),
        row_id=_id_of(row),
    )


def _id_of(row: object) -> str | int | None:
    value = row.get("id") if isinstance(row, Mapping) else None
    return value if isinstance(value, str | int) and not isinstance(value, bool) else None


def _texts(value: object) -> tuple[str, ...]:
    if value is None:
        return ()
    if isinstance(value, str):
        return (value,)
    if not isinstance(value, list) or not value or not all(isinstance(text, str) for text in value):
        raise BadRow('"completion" must be text, or a list of texts (several completions of one prompt)')
    return tuple(value)


def _finish(value: object) -> FinishReason:
    if value is None:
        return FinishReason.STOP
    if value not in _FINISHES:
        raise BadRow(f'"finish" must be {" or ".join(_FINISHES)}, or be left out (stop)')
    return FinishReason(value)
