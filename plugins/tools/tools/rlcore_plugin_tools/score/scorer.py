"""Judges items of files: keeps a bounded number of texts at the reward workers and yields verdicts in the order of the items.

Each verdict has the seconds that its rewards took, measured in the worker around the reward itself.
"""

from __future__ import annotations

import hashlib
import pickle
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcore.api import Outcome, RewardInput, Score
from rlcore.api.judging import PendingScores, Result, RewardEntry, RewardMixer, Task
from rlcore_plugin_tools.score.items import Item, TextVerdict

__all__ = ["Scorer"]

_TEXTS_PER_WORKER = 128  # texts at the workers at once, per worker: enough that no worker waits for the file to be read
_BYTES = 64 << 20  # characters at the workers at once: bounds the memory if texts are long
_AHEAD = 1 << 16  # items that may be judged or in progress while the first of them is not done
_REMEMBERED = 4096  # rows whose check is remembered: completions of one prompt are often adjacent
_WAIT_SECONDS = 1.0


@dataclass(slots=True, kw_only=True)
class ItemCase(PendingScores):
    """An item in progress. ``checks``: the tasks that check its row, each with the key under which the result is remembered; ``seconds``:
    in the rewards, by text; ``done``: its verdicts once they are known."""

    item: Item
    size: int = 0
    checks: dict[int, tuple[int, bytes]] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    trace: str = ""
    done: tuple[TextVerdict, ...] | None = None


class Scorer(RewardMixer[ItemCase]):
    """Judges items. Not thread-safe. Several rewards are mixed as in training; a row's ``reward`` routes it to one of them.

    :param entries: the rewards, at least one, with distinct names.
    :param workers: worker processes.
    :raises PluginError: a reward cannot be built.
    """

    def __init__(self, entries: Sequence[RewardEntry], *, workers: int) -> None:
        super().__init__(entries, workers=workers)
        self._most_texts = _TEXTS_PER_WORKER * workers
        self._order: deque[ItemCase] = deque()
        self._texts = self._bytes = 0
        self._checked: OrderedDict[tuple[int, bytes], str] = OrderedDict()

    @property
    def group_level(self) -> bool:
        """Whether a reward compares the texts of an item with each other."""
        return any(traits.group_level for traits in self.pool.traits)

    def run(self, items: Iterable[Item], *, scores: bool = True) -> Iterator[TextVerdict]:
        """Yield verdicts in the order of the items and of their texts; an item that cannot be judged has one, ``invalid``.

        ``scores`` False: the rows are only checked, and only verdicts of invalid ones are yielded.

        :raises RunError: no worker can be started any more.
        """
        source = iter(items)
        more = True
        while more or self._order:
            if more:
                more = self._fill(source, scores)
            yield from self._ready()
            if self.cases:
                for result in self.pool.poll(_WAIT_SECONDS):
                    self._take(result)
                yield from self._ready()

    def finished(self) -> Iterator[TextVerdict]:
        """Yield, after an interrupt, the verdicts that are known but wait for an earlier item without one."""
        for opened in self._order:
            yield from opened.done or ()
        self._order.clear()

    # --- out --------------------------------------------------------------------------------------------------------

    def _fill(self, source: Iterator[Item], scores: bool) -> bool:
        """Send items until the workers have as many as allowed; return False if the source has no more."""
        batch: list[Task] = []
        more = True
        while self._texts < self._most_texts and self._bytes < _BYTES and len(self._order) < _AHEAD:
            item = next(source, None)
            if item is None:
                more = False
                break
            batch += self._open(item, scores)
        if batch:
            self.pool.submit(batch)
        return more

    def _open(self, item: Item, scores: bool) -> list[Task]:
        opened = ItemCase(item=item)
        self._order.append(opened)
        if item.refused:
            opened.done = (
                TextVerdict(line=item.line, source=item.source, score=Score.failed(Outcome.INVALID, item.refused), row_id=item.row_id),
            )
            return []
        opened.rewards = self.routes(item.reward)
        opened.seconds = [0.0] * len(item.texts)
        opened.size = sum(map(len, item.texts))
        self._texts += len(item.texts)
        self._bytes += opened.size
        tasks = []
        for r in opened.rewards:
            columns = self.declared_columns(r, item.columns)
            tasks += self._check(opened, r, columns)
            if opened.done is not None:
                return []
            if scores:
                tasks += self.score_tasks(opened, r, {place: _input(item, columns, text) for place, text in enumerate(item.texts)})
        self.cases.update(dict.fromkeys(opened.missing, opened))
        if not tasks:
            self._finish(opened)
        return tasks

    def _check(self, opened: ItemCase, r: int, columns: Mapping[str, Any]) -> list[Task]:
        if not self.pool.traits[r].checks:
            return []
        key = (r, hashlib.sha256(pickle.dumps(columns)).digest())
        if key in self._checked:
            self._checked.move_to_end(key)
            if self._checked[key]:
                self._refuse(opened, r, self._checked[key])
            return []
        task = self.check_task(r, RewardInput(messages=opened.item.messages, columns=columns, text=""))
        opened.missing[task.task_id], opened.checks[task.task_id] = (), key
        return [task]

    # --- back -------------------------------------------------------------------------------------------------------

    def _take(self, result: Result) -> None:
        task_id, r = result.task.task_id, result.task.reward
        opened = self.cases.pop(task_id, None)
        if opened is None:
            return  # its item was refused meanwhile
        places, key = opened.missing.pop(task_id), opened.checks.pop(task_id, None)
        if key is not None:
            if result.failure is not None:  # the check itself failed, so nothing is known about the row
                opened.trace = opened.trace or result.trace
                self._give_up(opened, Score.failed(result.failure, f"{self.entries[r].name}: {result.complaint}"))
                return
            self._remember(key, result.complaint or "")
            if result.complaint:
                self._refuse(opened, r, result.complaint)
                return
        opened.trace = opened.trace or result.trace
        for place, score in zip(places, result.scores, strict=True):
            opened.scores[r, place] = score
            opened.seconds[place] += result.seconds / len(places)
        if not opened.missing:
            self._finish(opened)

    def _remember(self, key: tuple[int, bytes], complaint: str) -> None:
        self._checked[key] = complaint
        if len(self._checked) > _REMEMBERED:
            self._checked.popitem(last=False)

    def _refuse(self, opened: ItemCase, r: int, complaint: str) -> None:
        where = f"{opened.item.source}: " if opened.item.source else ""
        self._give_up(opened, Score.failed(Outcome.INVALID, f"{where}reward {self.entries[r].name} cannot score this row: {complaint}"))

    def _give_up(self, opened: ItemCase, score: Score) -> None:
        """Give the whole item this one verdict; the results of its other tasks are ignored."""
        self.pool.cancel(opened.missing)
        for task_id in opened.missing:
            self.cases.pop(task_id, None)
        opened.done = (
            TextVerdict(line=opened.item.line, source=opened.item.source, score=score, trace=opened.trace, row_id=opened.item.row_id),
        )
        self._leave(opened)

    def _finish(self, opened: ItemCase) -> None:
        item = opened.item
        opened.done = tuple(
            TextVerdict(
                line=item.line,
                source=item.source,
                score=self.mixed(opened, place),
                seconds=opened.seconds[place] or None,  # the seconds of a worker that died are unknown
                place=place if item.several else None,
                trace=opened.trace,
                row_id=item.row_id,
            )
            for place in range(len(item.texts))
            if opened.scores
        )
        self._leave(opened)

    def _leave(self, opened: ItemCase) -> None:
        """Free the texts of an item: only its verdicts wait for their turn."""
        self._texts -= len(opened.item.texts)
        self._bytes -= opened.size
        opened.item = Item(line=opened.item.line)
        opened.scores.clear()

    def _ready(self) -> Iterator[TextVerdict]:
        while self._order and self._order[0].done is not None:
            yield from self._order.popleft().done or ()


def _input(item: Item, columns: Mapping[str, Any], text: str) -> RewardInput:
    return RewardInput(messages=item.messages, columns=columns, text=text, finish=item.finish)
