"""Evaluations over several producers. Each producer receives a share of the jobs; the results count only if one version made all of
them."""

from __future__ import annotations

import asyncio
from typing import Any

from rlcore.api.runtime import Evaluation, Evaluator, TaskReport
from rlcore_plugin_workers.driver_loop import DriverLoop
from rlcore_plugin_workers.producer_pool import ProducerPool
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["EvaluationRunner"]

_AGAIN_SECONDS = 0.5
"""The seconds before an evaluation is dealt again after a death, so that several deaths at the same time cost one restart."""


class EvaluationRunner:
    """Runs evaluations, one at a time, in the order of the requested versions. For the driver's loop.

    Each evaluation uses the first requested version or a newer one, and answers all requests up to its version, later ones included. A
    second evaluation would use the same weights and write the same rows twice.
    """

    def __init__(self, evaluator: Evaluator, pool: ProducerPool, driver: DriverLoop) -> None:
        self._evaluator = evaluator
        self._pool = pool
        self._driver = driver
        self._wanted: list[int] = []
        """The versions that are requested and not yet evaluated."""
        self._made = -1
        """The newest version that was evaluated."""
        self._work: asyncio.Task[None] | None = None
        self._next_key = -1
        self._reports: list[tuple[int, list[TaskReport]]] = []

    async def start(self, step: int) -> None:
        """Request an evaluation with the weights of this version or newer."""
        if step > self._made:
            self._wanted.append(step)
        if self._wanted and (self._work is None or self._work.done()):
            self._work = self._driver.watch(self._evaluate())

    async def take(self, *, wait: bool) -> list[tuple[int, list[TaskReport]]]:
        """Return (version, reports) of each complete evaluation; with ``wait``, of all requested ones."""
        if wait and self._work is not None:
            await asyncio.wait([self._work])
        reports, self._reports = self._reports, []
        return reports

    async def _evaluate(self) -> None:
        """Make the requested evaluations, one after the other."""
        while self._wanted:
            evaluation, version, answers = await self._answers()
            self._reports.append((version, evaluation.reports(produced for _, results in answers for produced in results)))
            self._made = max(self._made, version)
            self._wanted = [wanted for wanted in self._wanted if wanted > version]

    async def _answers(self) -> tuple[Evaluation, int, list[Any]]:
        """Return an evaluation, the version that made all of it, and the answers of the producers."""
        spread = True
        while True:
            workers = self._pool.serving if spread else self._pool.serving[:1]  # a single producer has only one version
            try:
                if workers:  # else all of them are being replaced
                    evaluation, answers = await self._dealt(workers)
                    versions = {version for version, _ in answers}
                    if len(versions) <= 1:
                        return evaluation, max(versions, default=self._wanted[0]), answers
                    spread = False
                    continue
            except WorkerDiedError:
                # Make the whole evaluation again: the weights of the other producers may have changed meanwhile.
                spread = True
            await asyncio.sleep(_AGAIN_SECONDS)

    async def _dealt(self, workers: list[Any]) -> tuple[Evaluation, list[Any]]:
        """Deal the jobs of an evaluation to these producers, and return it with their answers, (version, results) each."""
        evaluation = self._evaluator.start(self._next_key)
        jobs = evaluation.jobs
        self._next_key -= len(jobs)
        shares = [(worker, jobs[number :: len(workers)]) for number, worker in enumerate(workers)]
        calls = [self._pool.evaluate(worker, share, self._wanted[0]) for worker, share in shares if share]
        return evaluation, await self._driver.values(calls)
