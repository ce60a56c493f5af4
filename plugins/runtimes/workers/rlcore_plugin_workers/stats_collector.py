"""The figures that the driver collects while the ranks train: figures of rewards, failures, faults, and times."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import reduce
from operator import add
from typing import Any

from rlcore.api.runtime import JudgeCounts, Timing, TokenCounts
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.driver_loop import DriverLoop, answered, successful_values
from rlcore_plugin_workers.producer_pool import ProducerPool
from rlcore_plugin_workers.trainer_ranks import TrainerRanks
from rlcore_plugin_workers.trainer_worker import TrainResult

__all__ = ["StatsCollector"]

_LAST_SECONDS = 10.0
"""How long to wait for the last answers at the end, since a worker may have died."""


class StatsCollector:
    """Asks for figures without waiting, and returns those that have arrived. For the driver's loop.

    ``timings``: the training backend's seconds by part, since the start. ``times``: worker -> category -> seconds, of the step for which
    ``figures`` was last called.
    """

    def __init__(self, driver: DriverLoop, deployment: Deployment, pool: ProducerPool, ranks: TrainerRanks) -> None:
        self._driver = driver
        self._deployment = deployment
        self._pool = pool
        self._ranks = ranks
        self.timings: Mapping[str, float] = {}
        self.times: Mapping[str, Mapping[str, float]] = {}
        self._timing: Timing | None = None
        self._judged: list[JudgeCounts] = []
        self.failures: list[dict[str, Any]] = []
        self._faults: list[dict[str, Any]] = []
        self._tokens = TokenCounts()
        self._counted = TokenCounts()
        self._open: set[asyncio.Task[None]] = set()

    def ask(self, until: float | None = None) -> None:
        """Ask all workers and services. ``until``: the moment up to which producers report their time; None means the moment of their
        answer."""
        for judge in self._deployment.judges():
            self._want(judge.call("take_judged"), self._judged.extend)
            self._want(judge.call("take_faults"), lambda faults: self._faults.extend(faults))
        # Do not pass `self.failures.extend`: the list may be handed out before the answer arrives.
        self._want(self._deployment.schedule.call("take_failures"), lambda failures: self.failures.extend(failures))
        self._want(self._deployment.schedule.call("tokens"), lambda tokens: setattr(self, "_tokens", tokens))
        for producer in self._pool.serving:
            self._want(producer.call("report", until), self._saw)

    def trained(self, ranks: Sequence[TrainResult]) -> None:
        """Take the reports of all ranks on the update that ends now, rank 0 first."""
        self.timings = ranks[0].timings
        for rank in ranks:
            self._saw(rank.time)

    def figures(self) -> dict[str, float]:
        """Return the figures of this step: those of the rewards, and seconds by role and category."""
        figures = reduce(add, self._judged).figures() if self._judged else {}
        self._judged.clear()
        if self._timing is not None:
            figures |= self._step(self._timing)
            self.times = self._timing.step_workers
        return figures

    async def take_failures(self) -> list[dict[str, Any]]:
        """Return the prompts that failed, as far as the reports have arrived."""
        failures, self.failures = self.failures, []
        return failures

    async def take_reward_faults(self) -> list[dict[str, Any]]:
        """Return the errors of rewards, as far as the reports have arrived."""
        faults, self._faults = self._faults, []
        return faults

    async def start(self) -> None:
        """Start to count seconds, and discard earlier reports of time."""
        now = time.monotonic()
        await successful_values([worker.call("report", self._up_to(now)) for worker in (*self._ranks.workers, *self._pool.serving)])
        self._timing = Timing.start(now)

    async def stop(self) -> Timing:
        """Collect the last answers, and return how the time was used."""
        assert self._timing is not None
        now = time.monotonic()
        for rank in self._ranks.workers:
            self._want(rank.call("report", self._up_to(now)), self._saw)
        await self.finish(self._up_to(now))
        self._step(self._timing)
        self._timing.stop(now, self.timings)
        return self._timing

    def _up_to(self, moment: float) -> float | None:
        """Return the moment up to which workers report; None if workers are on other hosts, whose clocks differ."""
        return moment if self._deployment.one_host else None

    def _step(self, timing: Timing) -> dict[str, float]:
        new, self._counted = self._tokens.since(self._counted), self._tokens
        return timing.step(tokens_generated=new.generated, tokens_wasted=new.wasted)

    async def finish(self, until: float | None = None) -> None:
        """Wait a short time for the last answers."""
        self.ask(until)
        await asyncio.wait(self._open, timeout=_LAST_SECONDS)

    def _saw(self, report: Any) -> None:
        if self._timing is not None:
            self._timing.saw([report])

    def _want(self, call: Future[Any], then: Callable[[Any], None]) -> None:
        task = self._driver.watch(self._taken(call, then))
        self._open.add(task)
        task.add_done_callback(self._open.discard)

    async def _taken(self, call: Future[Any], then: Callable[[Any], None]) -> None:
        try:
            value = await answered(call)
        except Exception:  # another task reports the death; the worker's figures are lost
            return
        then(value)
