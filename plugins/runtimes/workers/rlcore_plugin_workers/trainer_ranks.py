"""The trainer ranks of a run, as one: every call goes to all of them, and without one of them none can go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.api import PendingSave, RunError, UsageError
from rlcore.api.runtime import WorkerLostError
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.driver_loop import DriverLoop, answered, first_error, in_thread
from rlcore_plugin_workers.heartbeat import Deadlines, HeartbeatTimeoutError, watch_heartbeat
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.schedule_service import BatchOrder
from rlcore_plugin_workers.trainer_worker import RankShare, RankSharing, TrainerWorker, TrainResult
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["TrainerRanks"]


class TrainerRanks:
    """All methods are for the driver's loop. Rank 0 publishes the weights."""

    def __init__(self, deployment: Deployment, driver: DriverLoop, plan_bundle: PlanBundle, count: int, deadlines: Deadlines) -> None:
        self._driver, self._deadlines = driver, deadlines
        self._sharing: list[RankSharing] = []
        self.workers = [
            deployment.launcher.start(
                TrainerWorker,
                plan_bundle,
                rank,
                deployment.address,
                deployment.device,
                name=f"trainer rank {rank}",
                placement=deployment.trainer_placement(rank),
            )
            for rank in range(count)
        ]
        for rank, worker in enumerate(self.workers):
            driver.watch(self._lifetime(rank, worker))

    async def _lifetime(self, rank: int, worker: Worker) -> None:
        error = await first_error(answered(worker.call("lifetime", beside=True)))
        raise await self.failed(rank, error)

    async def prepare(self, prompts: int, port: int | None) -> list[Future[Any]]:
        """Have them load and meet; does not wait until they have. The first one answers with the address of the weights."""
        rendezvous = ""
        if len(self.workers) > 1:
            (rendezvous,) = await self._driver.values(self._loading([self.workers[0].call("rendezvous", port)]), self.failed)
        return self._loading([worker.call("prepare", prompts, rendezvous) for worker in self.workers])

    def _loading(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        self._driver.watch(self._deadlines.while_loading([worker.name for worker in self.workers[: len(calls)]], calls))
        return calls

    def watch(self) -> None:
        """From here on each must answer the driver in time."""
        for rank, worker in enumerate(self.workers):
            self._driver.watch(self._must_answer(rank, worker))

    async def _must_answer(self, rank: int, worker: Worker) -> None:
        error = await first_error(watch_heartbeat(worker, self._deadlines.silence_seconds))
        if not isinstance(error, HeartbeatTimeoutError):
            raise error
        raise WorkerLostError(f"trainer rank {rank} of {len(self.workers)} was lost ({error})")

    async def _together(self, calls: Sequence[Future[Any]]) -> list[Any]:
        """Their answers. One that waits for ever, in a collective or on a file system, ends all of them at the deadline."""
        seconds = self._deadlines.trainer_seconds
        try:
            return await self._driver.values(calls, self.failed, seconds)
        except TimeoutError as late:
            names = ", ".join(self.workers[number].name for number in late.args)
            raise WorkerLostError(
                f"{names} did not come back within {seconds:g} s; if an update or a checkpoint may take as long as that, raise "
                "--trainer-deadline"
            ) from None

    async def start(self, probe_ids: np.ndarray | None, profiles: Path | None) -> None:
        """Hand out the weights that the run begins with. ``profiles``: the folder for the ranks' profiles, None for none."""
        files = [profiles / f"profile-trainer-{rank}.prof" if profiles else None for rank in range(len(self.workers))]
        calls = zip(self.workers, files, strict=True)
        await self._together([worker.call("start", probe_ids, file) for worker, file in calls])

    def close(self) -> list[Future[Any]]:
        """Have them leave each other."""
        return [worker.call("close") for worker in self.workers]

    async def learn_sharing(self) -> None:
        """Ask them, once they have loaded, how they share batches."""
        if len(self.workers) > 1:
            self._sharing = await self._driver.values([worker.call("sharing") for worker in self.workers], self.failed)

    @property
    def shared(self) -> bool:
        """Whether a rank gets only the groups that it computes on, and outlines of the others."""
        return any(rank.size > 1 for rank in self._sharing) and not any(rank.whole for rank in self._sharing)

    @property
    def places(self) -> list[int]:
        """By rank: those of one place need the same groups."""
        return [rank.place for rank in self._sharing] if self.shared else [0] * len(self.workers)

    @property
    def outlined(self) -> list[tuple[bool, bool]]:
        """``logprobs`` and ``told`` of the outlines that each rank needs. Rank 0 reports of the whole batch."""
        return [(number == 0 or rank.logprobs, number == 0) for number, rank in enumerate(self._sharing)]

    async def plan(self, order: BatchOrder, outlines: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
        """Have each share the batch out, and wait for it; the leases of the groups that it needs, by rank. ``outlines``: by rank."""
        given = [(order, *of_stores) for of_stores in outlines]
        return self.agreed(await self._together(await self._called("share_out", given)))

    async def plan_ahead(self, order: BatchOrder, outlines: Sequence[Sequence[Any]]) -> list[Future[Any]]:
        """``plan``, beside what they do; does not wait for them. What they answer is for ``agreed``."""
        return await self._called("share_out", [(order, *of_stores) for of_stores in outlines], beside=True)

    def agreed(self, answers: Sequence[RankShare]) -> list[tuple[int, ...]]:
        """The leases, by rank. RunError if they came to different shares: some groups would be trained twice, and others never."""
        other = next((rank for rank, answer in enumerate(answers) if answer.digest != answers[0].digest), None)
        if other is not None:
            raise RunError(
                f"trainer ranks 0 and {other} share the same batch out differently, so that some of its groups would be trained twice and "
                "others never: `cost` of the training backend must answer the same on every rank, also before it has the tokens; its "
                "TrainingBackendSuite tries that"
            )
        return [answer.leases for answer in answers]

    async def train(self, order: BatchOrder, log_rollouts: bool, groups: Sequence[Sequence[Any]]) -> list[TrainResult]:
        """Have them make one update, and wait for it; what every rank reports, rank 0 first. ``groups``: by rank, what stores send."""
        return await self._together(await self._called("train", [(order, log_rollouts, *of_stores) for of_stores in groups]))

    async def preload(self, groups: Sequence[Sequence[Any]]) -> list[Future[Any]]:
        """Bring groups of a batch to come to the ranks, beside what they do; does not wait for them. Each answers with its leases."""
        return await self._called("preload", groups, beside=True)

    async def _called(self, method: str, given: Sequence[Sequence[Any]], *, beside: bool = False) -> list[Future[Any]]:
        """Call a method of every rank; ``given``: by rank. In a thread: to pickle a batch takes long, and the schedule is in this loop."""
        calls = list(zip(self.workers, given, strict=True))
        return await in_thread(lambda: [worker.call(method, *arguments, beside=beside) for worker, arguments in calls])

    def producer_left(self, name: str) -> Future[str]:
        """A producer died: no transfer of weights waits for it. Why the publisher ended it, if it did."""
        return self.workers[0].call("producer_left", name, beside=True)

    def producer_to_end(self) -> Future[str | None]:
        """The next producer that the weights wait for no more, and whose process must be ended; None if rank 0 closes."""
        return self.workers[0].call("producer_to_end", beside=True)

    async def save(self, folder: Path) -> PendingSave:
        """Begin ``model/`` and ``trainer/`` below the folder; the next update may be asked for when this returns."""
        await self._together([worker.call("save", folder.resolve()) for worker in self.workers])
        calls = [worker.call("saved", beside=True) for worker in self.workers]
        return _RanksSaving(calls, lambda: self._driver.run(self._together(calls)))

    async def failed(self, rank: int, error: BaseException) -> BaseException:
        """The error of one rank; its death, or that of another rank that it had to do with, in one sentence."""
        if isinstance(error, WorkerDiedError):
            why = error.details or error
            return WorkerLostError(f"trainer rank {rank} of {len(self.workers)} died ({why})")
        alone = len(self.workers) == 1 or isinstance(error, UsageError | WorkerLostError)
        return error if alone else await self._driver.cause(error)


@dataclass(frozen=True, slots=True)
class _RanksSaving:
    """What every rank writes. ``result`` is for the thread that calls the crew."""

    calls: Sequence[Future[Any]]
    result: Callable[[], object]

    def done(self) -> bool:
        return all(call.done() for call in self.calls)
