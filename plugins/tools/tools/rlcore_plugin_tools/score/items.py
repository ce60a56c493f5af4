"""The input and output of judging: an item is a prompt with its completions; each completion gets a verdict. Reads the rows of a file."""

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
"""Columns of a row that do not belong to its data row."""
_FINISHES = (FinishReason.STOP.value, FinishReason.LENGTH.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """A prompt and the texts to judge; a reward that judges groups receives all of them at once.

    - ``line``: its line in the file, from 1.
    - ``several``: the row has a list of completions, so each verdict gives its index in it.
    - ``refused``: why it cannot be judged, "" if it can.
    - ``reward``: the one reward that the row asks for, None for all.
    - ``row_id``: its ``id``, unchanged.
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
    """The mixed score of one completion. ``seconds``: in the rewards, without waiting; None if no reward was called. ``place``: the
    index of the completion in its row, from 0; None if the row has only one. ``trace``: the traceback if the reward's own code raised,
    else ""."""

    line: int
    source: str
    score: Score
    seconds: float | None = None
    place: int | None = None
    trace: str = ""
    row_id: str | int | None = None

    @property
    def counts(self) -> bool:
        """Whether it is about the text. A reward may also report that it does not apply; such a verdict counts nowhere."""
        return self.score.outcome.judged and (self.score.in_statistics or self.score.in_loss)

    def as_row(self) -> dict[str, Any]:
        """Return one row of a result file. A text that was not judged has the value null, never 0."""
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
    """A data set to judge, as typed (a file, a folder, ``hf:NAME``), and how to read its rows: ``config.data`` names format and columns.
    ``say`` is called once with the row format that was found."""

    path: str
    registry: Registry
    config: RunConfig
    say: Callable[[str], None] = lambda line: None


def verdict_of(row: Mapping[str, Any], source: str) -> TextVerdict:
    """Return the verdict of a row that ``as_row`` made; ``source``: the file that was judged. The row has no traceback."""
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
    """Yield the rows of a data set in order, at most ``limit`` of them; a bad row becomes a refused item with its reason.

    Without ``needs_completion``, a row that has no completion becomes an item without texts.

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
    assert isinstance(row, Mapping)  # parse_row accepts nothing else
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
