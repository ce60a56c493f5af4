"""Items through a pool of reward workers, verdicts out in the order of the items, with a bounded number on the way.

Beside each score stands the time that its rewards took, which the engine measures around the reward itself.
"""

from __future__ import annotations

import hashlib
import itertools
import pickle
from collections import OrderedDict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

from rlcore.rewards import RewardEntry, RewardPool
from rlcore.rewards.inbox import Result
from rlcore.rewards.mixing import mix
from rlcore.rewards.protocol import Task
from rlcore.rewards.tasks import check_task, score_tasks, seen_columns
from rlcore.scoring.items import Item, Verdict
from rlcore.types import Outcome, RewardInput, Score

__all__ = ["Scorer"]

_TEXTS_PER_WORKER = 128  # texts out at once, for each worker: enough that none waits for the reader
_BYTES = 64 << 20  # characters out at once: what bounds memory where texts are long
_AHEAD = 1 << 16  # items judged or being judged while the first of them is not done
_REMEMBERED = 4096  # rows whose check is remembered: completions of one prompt often stand together
_WAIT_SECONDS = 1.0


@dataclass(slots=True)
class _Open:
    """An item on its way. ``tasks``: what is out of it, each with (reward, places); ``done`` once its verdicts are known."""

    item: Item
    rewards: tuple[int, ...] = ()
    size: int = 0
    tasks: dict[int, tuple[int, tuple[int, ...]]] = field(default_factory=dict)
    scores: dict[tuple[int, int], Score] = field(default_factory=dict)
    seconds: list[float] = field(default_factory=list)
    trace: str = ""
    done: tuple[Verdict, ...] | None = None


class Scorer:
    """Owns a ``RewardPool``. Not thread-safe. Several rewards are mixed as in training; a row's ``reward`` routes it to one of them.

    :param entries: the rewards, names distinct.
    :param workers: worker processes.
    :raises PluginError: a reward cannot be built.
    """

    def __init__(self, entries: Sequence[RewardEntry], *, workers: int) -> None:
        self._entries = tuple(entries)
        self._index = {entry.name: number for number, entry in enumerate(self._entries)}
        self._pool = RewardPool(self._entries, workers=workers)
        self._most_texts = _TEXTS_PER_WORKER * workers
        self._ids = itertools.count()
        self._of_task: dict[int, _Open] = {}
        self._order: deque[_Open] = deque()
        self._texts = self._bytes = 0
        self._checked: OrderedDict[tuple[int, bytes], str] = OrderedDict()
        self._check_keys: dict[int, tuple[int, bytes]] = {}

    @property
    def notices(self) -> tuple[str, ...]:
        """What the rewards say of how they judge on this machine, each with its name in front."""
        return tuple(f"reward {self._entries[place].name}: {text}" for place, text in self._pool.notices)

    @property
    def group_level(self) -> bool:
        """Whether a reward judges the texts of an item against each other."""
        return any(traits.group_level for traits in self._pool.traits)

    def run(self, items: Iterable[Item], *, scores: bool = True) -> Iterator[Verdict]:
        """Verdicts in the order of the items and of their texts; an item that cannot be judged has one, ``invalid``.

        ``scores`` False: the rows are checked only, and just the invalid ones come out.

        :raises RunError: no worker can be started any more.
        """
        source = iter(items)
        more = True
        while more or self._order:
            if more:
                more = self._fill(source, scores)
            yield from self._ready()
            if self._of_task:
                for result in self._pool.poll(_WAIT_SECONDS):
                    self._take(result)
                yield from self._ready()

    def finished(self) -> Iterator[Verdict]:
        """After an interrupt: what was judged already and waits for an earlier item that was not."""
        for opened in self._order:
            yield from opened.done or ()
        self._order.clear()

    def close(self) -> None:
        """Stop the workers and wait until they are gone. May be called twice."""
        self._pool.close()

    def __enter__(self) -> Scorer:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    # --- out --------------------------------------------------------------------------------------------------------

    def _fill(self, source: Iterator[Item], scores: bool) -> bool:
        """Send as many items as may be out at once; False where there are no more."""
        batch: list[Task] = []
        more = True
        while self._texts < self._most_texts and self._bytes < _BYTES and len(self._order) < _AHEAD:
            item = next(source, None)
            if item is None:
                more = False
                break
            batch += self._open(item, scores)
        if batch:
            self._pool.submit(batch)
        return more

    def _open(self, item: Item, scores: bool) -> list[Task]:
        opened = _Open(item=item)
        self._order.append(opened)
        if item.refused:
            opened.done = (Verdict(line=item.line, source=item.source, score=Score.failed(Outcome.INVALID, item.refused)),)
            return []
        opened.rewards = tuple(range(len(self._entries))) if item.reward is None else (self._index[item.reward],)
        opened.seconds = [0.0] * len(item.texts)
        opened.size = sum(map(len, item.texts))
        self._texts += len(item.texts)
        self._bytes += opened.size
        tasks = []
        for r in opened.rewards:
            columns = seen_columns(self._entries[r], self._pool.traits[r], item.columns)
            tasks += self._check(opened, r, columns)
            if opened.done is not None:
                return []
            if scores:
                tasks += self._score(opened, r, columns)
        if not tasks:
            self._finish(opened)
        return tasks

    def _check(self, opened: _Open, r: int, columns: Mapping[str, Any]) -> list[Task]:
        if not self._pool.traits[r].checks:
            return []
        key = (r, hashlib.sha256(pickle.dumps(columns)).digest())
        if key in self._checked:
            self._checked.move_to_end(key)
            if self._checked[key]:
                self._refuse(opened, r, self._checked[key])
            return []
        item = RewardInput(messages=opened.item.messages, columns=columns, text="")
        task = check_task(next(self._ids), r, self._entries[r], item)
        self._check_keys[task.task_id] = key
        self._book(opened, task, ())
        return [task]

    def _score(self, opened: _Open, r: int, columns: Mapping[str, Any]) -> list[Task]:
        item = opened.item
        items = {
            place: RewardInput(messages=item.messages, columns=columns, text=text, finish=item.finish)
            for place, text in enumerate(item.texts)
        }
        booked = score_tasks(self._ids, r, self._entries[r], self._pool.traits[r], items)
        for task, places in booked:
            self._book(opened, task, places)
        return [task for task, _ in booked]

    def _book(self, opened: _Open, task: Task, places: tuple[int, ...]) -> None:
        opened.tasks[task.task_id] = (task.reward, places)
        self._of_task[task.task_id] = opened

    # --- back -------------------------------------------------------------------------------------------------------

    def _take(self, result: Result) -> None:
        task_id = result.task.task_id
        key = self._check_keys.pop(task_id, None)
        opened = self._of_task.pop(task_id, None)
        if opened is None:
            return  # of an item that was refused meanwhile
        r, places = opened.tasks.pop(task_id)
        if key is not None:
            if result.failure is not None:  # of the check itself, which says nothing of the row
                opened.trace = opened.trace or result.trace
                self._give_up(opened, Score.failed(result.failure, f"{self._entries[r].name}: {result.complaint}"))
                return
            self._remember(key, result.complaint or "")
            if result.complaint:
                self._refuse(opened, r, result.complaint)
                return
        opened.trace = opened.trace or result.trace
        for place, score in zip(places, result.scores, strict=True):
            opened.scores[r, place] = score
            opened.seconds[place] += result.seconds / len(places)
        if not opened.tasks:
            self._finish(opened)

    def _remember(self, key: tuple[int, bytes], complaint: str) -> None:
        self._checked[key] = complaint
        if len(self._checked) > _REMEMBERED:
            self._checked.popitem(last=False)

    def _refuse(self, opened: _Open, r: int, complaint: str) -> None:
        where = f"{opened.item.source}: " if opened.item.source else ""
        self._give_up(opened, Score.failed(Outcome.INVALID, f"{where}reward {self._entries[r].name} cannot judge this row: {complaint}"))

    def _give_up(self, opened: _Open, score: Score) -> None:
        """The whole item has this one verdict; what is out of it ends unheard."""
        self._pool.cancel(opened.tasks)
        for task_id in opened.tasks:
            self._of_task.pop(task_id)
            self._check_keys.pop(task_id, None)
        opened.done = (Verdict(line=opened.item.line, source=opened.item.source, score=score, trace=opened.trace),)
        self._leave(opened)

    def _finish(self, opened: _Open) -> None:
        item = opened.item
        opened.done = tuple(
            Verdict(
                line=item.line,
                source=item.source,
                score=mix([(self._entries[r].name, self._entries[r].weight, opened.scores[r, place]) for r in opened.rewards]),
                seconds=opened.seconds[place] or None,  # a worker that died took no time that anybody knows
                place=place if item.several else None,
                trace=opened.trace,
            )
            for place in range(len(item.texts))
            if opened.scores
        )
        self._leave(opened)

    def _leave(self, opened: _Open) -> None:
        """Its texts may go: only the verdicts wait for their turn."""
        self._texts -= len(opened.item.texts)
        self._bytes -= opened.size
        opened.item = Item(line=opened.item.line)
        opened.scores.clear()

    def _ready(self) -> Iterator[Verdict]:
        while self._order and self._order[0].done is not None:
            yield from self._order.popleft().done or ()
