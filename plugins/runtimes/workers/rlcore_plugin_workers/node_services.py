"""The services of a node as plain asyncio objects: the store, which holds groups between generation and training, and the judge, a pool of
reward workers. The producers of the node share them. The Ray runtime makes actors of them."""

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
"""``ScheduleService.deliver``, in any process."""


class GroupStore:
    """Groups by lease. They outlive the producer that made them.

    Only the store reports groups to the schedule, so that each group that the schedule knows is in a store. ``keep_scored``: also keep all
    scored groups for the run's observers, rejected ones included. ``started`` is called at every start.
    """

    def __init__(self, name: str, deliver: Deliver, *, keep_scored: bool = False, started: Callable[[], None] = lambda: None) -> None:
        started()
        self.name = name
        self._deliver = deliver
        self._groups: dict[int, Group] = {}
        self._keep_scored = keep_scored
        self._scored: list[Group] = []

    async def deliver(self, worker: str, arrivals: Sequence[GroupSummary], groups: Sequence[Group]) -> int:
        """Store a producer's groups, report them, and return how many the schedule kept. Drop the others at once."""
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
        """Return the leases whose groups are missing, and the other groups by lease. The groups stay until ``forget``, because their batch
        may become void."""
        here = {lease_id: self._groups[lease_id] for lease_id in lease_ids if lease_id in self._groups}
        return tuple(lease_id for lease_id in lease_ids if lease_id not in here), here

    async def outlines(self, lease_ids: Sequence[int], logprobs: bool, told: bool) -> tuple[tuple[int, ...], Mapping[int, Group]]:
        """Return outlines (``outline_of``) in the form of ``read``: the data that a rank needs about groups whose tokens it does not
        compute on."""
        missing, here = await self.read(lease_ids)
        return missing, {lease_id: outline_of(group, logprobs=logprobs, told=told) for lease_id, group in here.items()}

    async def forget(self, lease_ids: Sequence[int]) -> None:
        """Drop groups that were trained."""
        for lease_id in lease_ids:
            self._groups.pop(lease_id, None)

    async def lives(self) -> None:
        """Return, which shows that its process is not stopped."""

    async def take_scored(self) -> list[Group]:
        """Return all groups that were scored since the last call; [] unless ``keep_scored``."""
        scored, self._scored = self._scored, []
        return scored


_POLL_SECONDS = 1.0
"""The longest wait of the thread in one call of the judge; every verdict ends it early."""


class AsyncJudge:
    """A judge behind an event loop: callers wait for scores without blocking the loop. A thread collects the verdicts until ``end``."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._keys = itertools.count()
        self._waiting: dict[int, asyncio.Future[tuple[Score, ...]]] = {}
        self._thread: threading.Thread | None = None
        self._error: Exception | None = None
        self._closing = False

    async def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool) -> tuple[Score, ...]:
        """Return the scores of one group, in the order of its rollouts. Raise the errors that end a run: RewardBudgetError, RunError."""
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
        """Return the counts since the last call, as ``Judge.take_judged`` does."""
        return [self.judge.take_judged()]

    async def take_faults(self) -> list[dict[str, Any]]:
        """Return the errors of rewards since the last call, as ``Judge.take_faults`` does."""
        return self.judge.take_faults()

    def end(self) -> None:
        """Stop collecting verdicts. The judge may be closed after this call."""
        self._closing = True

    def _collect(self, loop: asyncio.AbstractEventLoop) -> None:
        while not self._closing:
            try:
                for key, scores in self.judge.poll(_POLL_SECONDS):
                    loop.call_soon_threadsafe(self._answer, key, scores)
            except Exception as error:  # every waiting caller must receive the error, whatever it is
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
