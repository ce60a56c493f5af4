"""EvaluationRunner over several producers: each takes a share of the jobs; what they made counts only where one version made all of it."""

from __future__ import annotations

import asyncio
from typing import Any

from rlcore.api.runtime import Evaluation, Evaluator, TaskReport
from rlcore_plugin_workers.driver_loop import DriverLoop
from rlcore_plugin_workers.producer_pool import ProducerPool
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["EvaluationRunner"]

_AGAIN_SECONDS = 0.5
"""Until an evaluation is dealt again after a death, so that the deaths of several at a time cost one beginning."""


class EvaluationRunner:
    """One at a time, in the order of the versions that were asked for. For the driver's loop.

    Each is made by the first version that is asked for, or by a newer one, and answers all requests up to its version, later ones
    included: a second one would use the same weights and write the same rows twice.
    """

    def __init__(self, evaluator: Evaluator, pool: ProducerPool, driver: DriverLoop) -> None:
        self._evaluator = evaluator
        self._pool = pool
        self._driver = driver
        self._wanted: list[int] = []
        """The versions that are asked for and not evaluated."""
        self._made = -1
        """The newest version that was evaluated."""
        self._work: asyncio.Task[None] | None = None
        self._next_key = -1
        self._reports: list[tuple[int, list[TaskReport]]] = []

    async def start(self, step: int) -> None:
        """Ask for an evaluation with the weights of this version or newer."""
        if step > self._made:
            self._wanted.append(step)
        if self._wanted and (self._work is None or self._work.done()):
            self._work = self._driver.watch(self._evaluate())

    async def take(self, *, wait: bool) -> list[tuple[int, list[TaskReport]]]:
        """(version, reports) of those that are complete; with ``wait``, of all that were asked for."""
        if wait and self._work is not None:
            await asyncio.wait([self._work])
        reports, self._reports = self._reports, []
        return reports

    async def _evaluate(self) -> None:
        """Make what is wanted, one evaluation after the other."""
        while self._wanted:
            evaluation, version, answers = await self._answers()
            self._reports.append((version, evaluation.reports(produced for _, results in answers for produced in results)))
            self._made = max(self._made, version)
            self._wanted = [wanted for wanted in self._wanted if wanted > version]

    async def _answers(self) -> tuple[Evaluation, int, list[Any]]:
        """An evaluation, the version that made all of it, and what the producers answered."""
        spread = True
        while True:
            workers = self._pool.serving if spread else self._pool.serving[:1]  # the first one cannot disagree with itself
            try:
                if workers:  # else all of them are being replaced
                    evaluation, answers = await self._dealt(workers)
                    versions = {version for version, _ in answers}
                    if len(versions) <= 1:
                        return evaluation, max(versions, default=self._wanted[0]), answers
                    spread = False
                    continue
            except WorkerDiedError:
                # What the dead one had is made again, and the rest with it: weights may have changed meanwhile.
                spread = True
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _dealt(self, workers: list[Any]) -> tuple[Evaluation, list[Any]]:
        """Deal the jobs of an evaluation to these producers; their answers, (version, results) each."""
        evaluation = self._evaluator.start(self._next_key)
        jobs = evaluation.jobs
        self._next_key -= len(jobs)
        shares = [(worker, jobs[number :: len(workers)]) for number, worker in enumerate(workers)]
        calls = [self._pool.evaluate(worker, share, self._wanted[0]) for worker, share in shares if share]
        return evaluation, await self._driver.values(calls)
