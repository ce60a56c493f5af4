"""The services of a node, as plain asyncio objects: the store, where groups wait between generation and training, and the judge, one pool
of reward workers. The producers of the node share them; the Ray runtime makes actors of them."""

from __future__ import annotations

import asyncio
import itertools
import threading
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any

from rlcore.api import Group, Prompt, Rollout, Score
from rlcore.api.runtime import DeliveryStatus, GroupSummary, Judge, JudgeCounts, outline_of

__all__ = ["AsyncJudge", "Deliver", "GroupStore"]

Deliver = Callable[[str, str, Sequence[GroupSummary]], Awaitable[list[DeliveryStatus]]]
"""``ScheduleService.deliver``, wherever it is."""


class GroupStore:
    """Groups by lease; they outlive the producer that made them. The store alone tells the schedule of them, so that what the schedule
    believes to be here is here. ``keep_scored``: also hold every scored group for the run's observers, whatever became of it.
    ``started``: called at every start."""

    def __init__(self, name: str, deliver: Deliver, *, keep_scored: bool = False, started: Callable[[], None] = lambda: None) -> None:
        started()
        self.name = name
        self._deliver = deliver
        self._groups: dict[int, Group] = {}
        self._keep_scored = keep_scored
        self._scored: list[Group] = []

    async def deliver(self, worker: str, arrivals: Sequence[GroupSummary], groups: Sequence[Group]) -> int:
        """Take a producer's groups and report them; how many of them were kept. Those that are not wanted are dropped at once."""
        if self._keep_scored:
            self._scored += groups
        for arrival, group in zip(arrivals, groups, strict=True):
            self._groups[arrival.delivery.lease_id] = group
        try:
            verdicts = await self._deliver(self.name, worker, arrivals)
        except Exception:
            self._drop(arrivals)
            raise
        self._drop(arrival for arrival, verdict in zip(arrivals, verdicts, strict=True) if not verdict.kept)
        return sum(verdict.kept for verdict in verdicts)

    def _drop(self, arrivals: Iterable[GroupSummary]) -> None:
        for arrival in arrivals:
            self._groups.pop(arrival.delivery.lease_id, None)

    async def read(self, lease_ids: Sequence[int]) -> tuple[tuple[int, ...], Mapping[int, Group]]:
        """(the leases whose groups are not here, the others' groups by lease). They stay until ``forget``: their batch may become void."""
        here = {lease_id: self._groups[lease_id] for lease_id in lease_ids if lease_id in self._groups}
        return tuple(lease_id for lease_id in lease_ids if lease_id not in here), here

    async def outlines(self, lease_ids: Sequence[int], logprobs: bool, told: bool) -> tuple[tuple[int, ...], Mapping[int, Group]]:
        """``read``, of outlines (``outline_of``): what a rank must know of groups whose tokens it does not compute on."""
        missing, here = await self.read(lease_ids)
        return missing, {lease_id: outline_of(group, logprobs=logprobs, told=told) for lease_id, group in here.items()}

    async def forget(self, lease_ids: Sequence[int]) -> None:
        """These were trained."""
        for lease_id in lease_ids:
            self._groups.pop(lease_id, None)

    async def lives(self) -> None:
        """Return, which shows that its process is not stopped."""

    async def take_scored(self) -> list[Group]:
        """Every group that was scored since the last call; empty unless ``keep_scored``."""
        scored, self._scored = self._scored, []
        return scored


_POLL_SECONDS = 1.0
"""The longest that the thread waits in one call of the judge; it wakes for every verdict."""


class AsyncJudge:
    """A judge behind an event loop: who waits for scores is parked. A thread takes the verdicts until ``end``."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._keys = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[Score, ...]]] = {}
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._closing = False

    async def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool) -> tuple[Score, ...]:
        """The scores of one group, in the order of its rollouts. Raises what ends a run: RewardBudgetError, RunError."""
        if self._error is not None:
            raise self._error
        loop = asyncio.get_running_loop()
        if self._thread is None:
            self._thread = threading.Thread(target=self._collect, args=(loop,), name="verdicts", daemon=True)
            self._thread.start()
        key = next(self._keys)
        answer: asyncio.Future[tuple[Score, ...]] = loop.create_future()
        self._waiting[key] = answer
        try:
            self.judge.submit(key, prompt, rollouts, counted=counted)
            return await answer
        finally:
            self._waiting.pop(key, None)

    async def take_judged(self) -> list[JudgeCounts]:
        """``Judge.take_judged``: counts since the last call."""
        return [self.judge.take_judged()]

    async def take_faults(self) -> list[dict[str, Any]]:
        """``Judge.take_faults``: what rewards raised since the last call."""
        return self.judge.take_faults()

    def end(self) -> None:
        """Nothing is judged any more; the judge may be closed from here on."""
        self._closing = True

    def _collect(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            try:
                for key, scores in self.judge.poll(_POLL_SECONDS):
                    loop.call_soon_threadsafe(self._answer, key, scores)
            except Exception as error:  # whatever it is, everybody who waits must hear of it
                if not self._closing:
                    loop.call_soon_threadsafe(self._fail, error)
                return

    def _answer(self, key: int, scores: tuple[Score, ...]) -> None:
        answer = self._waiting.pop(key, None)
        if answer is not None and not answer.done():
            answer.set_result(scores)

    def _fail(self, error: Exception) -> None:
        self._error = error
        waiting, self._waiting = self._waiting, {}
        for parked in waiting.values():
            if not parked.done():
                parked.set_exception(error)
