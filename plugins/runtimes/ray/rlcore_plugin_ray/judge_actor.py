"""The judge of a node: an actor that its producers share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from rlcore_plugin_workers.node_services import AsyncJudge
from rlcore_plugin_workers.plan_bundle import PlanBundle

from rlcore.api import Prompt, Rollout, Score
from rlcore.api.runtime import Judge, JudgeCounts, load_data, make_judge

__all__ = ["JudgeActor"]


class JudgeActor:
    """Owns a Judge, made at the first call that needs one, also after a restart of the process. ``started`` is called at every start."""

    def __init__(self, plan_bundle: PlanBundle, *, started: Callable[[], None] = lambda: None) -> None:
        started()
        self._plan_bundle = plan_bundle
        self._made: AsyncJudge | None = None
        self._making = asyncio.Lock()

    async def lives(self) -> None:
        """Return, which shows that its process is not stopped."""

    async def check(self) -> tuple[str, ...]:
        """Have the rewards check every row, and return their notices about this machine. Raise DataError for rows that they cannot
        judge."""
        judge = (await self._judge()).judge
        await asyncio.to_thread(self._check, judge)
        return judge.notices

    def _check(self, judge: Judge) -> None:
        for data_set in load_data(self._plan_bundle.open("the judge")).values():
            judge.check(data_set.prompts)

    async def _judge(self) -> AsyncJudge:
        async with self._making:
            if self._made is None:
                self._made = AsyncJudge(await asyncio.to_thread(lambda: make_judge(self._plan_bundle.open("the judge"))))
            return self._made

    async def score(self, prompt: Prompt, rollouts: Sequence[Rollout], counted: bool) -> tuple[Score, ...]:
        """Return the scores of a group, as ``AsyncJudge.score`` does."""
        return await (await self._judge()).score(prompt, rollouts, counted)

    async def take_judged(self) -> list[JudgeCounts]:
        """Return the counts since the last call, as ``Judge.take_judged`` does; [] if this judge never judged."""
        return await self._made.take_judged() if self._made is not None else []

    async def take_faults(self) -> list[dict[str, Any]]:
        """Return the errors of rewards since the last call, as ``Judge.take_faults`` does."""
        return await self._made.take_faults() if self._made is not None else []

    async def close(self) -> None:
        """Stop the workers and wait until they are gone."""
        async with self._making:
            if self._made is not None:
                self._made.end()
                await asyncio.to_thread(self._made.judge.close)
