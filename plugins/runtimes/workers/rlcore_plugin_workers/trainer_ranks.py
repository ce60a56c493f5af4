"""The trainer ranks of a run as one object: every call goes to all ranks, and the loss of one rank stops all of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
    """The trainer ranks; all methods are for the driver's loop. Rank 0 publishes the weights."""

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

    async def prepare(self, prompts: Sequence[int | None], port: int | None) -> list[Future[Any]]:
        """Have the ranks load the model and connect to each other; return their calls without waiting for them. The first call returns the
        address of the weights."""
        rendezvous = ""
        if len(self.workers) > 1:
            (rendezvous,) = await self._driver.values(self._loading([self.workers[0].call("rendezvous", port)]), self.failed)
        return self._loading([worker.call("prepare", prompts, rendezvous) for worker in self.workers])

    def _loading(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        self._driver.watch(self._deadlines.while_loading([worker.name for worker in self.workers[: len(calls)]], calls))
        return calls

    def watch(self) -> None:
        """Watch from now on that each rank answers the driver in time."""
        for rank, worker in enumerate(self.workers):
            self._driver.watch(self._must_answer(rank, worker))

    async def _must_answer(self, rank: int, worker: Worker) -> None:
        error = await first_error(watch_heartbeat(worker, self._deadlines.silence_seconds))
        if not isinstance(error, HeartbeatTimeoutError):
            raise error
        raise WorkerLostError(f"trainer rank {rank} of {len(self.workers)} was lost ({error})")

    async def _together(self, calls: Sequence[Future[Any]]) -> list[Any]:
        """Return the values of the calls. If a rank waits for ever, in a collective or on a file system, the deadline ends all of them."""
        seconds = self._deadlines.trainer_seconds
        try:
            return await self._driver.values(calls, self.failed, seconds)
        except TimeoutError as late:
            names = ", ".join(self.workers[number].name for number in late.args)
            raise WorkerLostError(
                f"{names} did not return within {seconds:g} s; if an update or a checkpoint may take that long, raise --trainer-deadline"
            ) from None

    async def start(self, probe_ids: np.ndarray | None, profiles: Path | None) -> None:
        """Publish the first weights of the run. ``profiles``: the folder for the ranks' profiles, None for no profiles."""
        files = [profiles / f"profile-trainer-{rank}.prof" if profiles else None for rank in range(len(self.workers))]
        calls = zip(self.workers, files, strict=True)
        await self._together([worker.call("start", probe_ids, file) for worker, file in calls])

    def close(self) -> list[Future[Any]]:
        """Have the ranks disconnect from each other."""
        return [worker.call("close") for worker in self.workers]

    async def learn_sharing(self) -> None:
        """Ask the ranks how they share batches. They must have loaded the model."""
        if len(self.workers) > 1:
            self._sharing = await self._driver.values([worker.call("sharing") for worker in self.workers], self.failed)

    @property
    def shared(self) -> bool:
        """Whether a rank receives only outlines of the groups that it does not compute on."""
        return any(rank.size > 1 for rank in self._sharing) and not any(rank.whole for rank in self._sharing)

    @property
    def places(self) -> list[int]:
        """The place of each rank, by rank. Ranks of one place need the same groups."""
        return [rank.place for rank in self._sharing] if self.shared else [0] * len(self.workers)

    @property
    def outlined(self) -> list[tuple[bool, bool]]:
        """The arguments ``logprobs`` and ``told`` of the outlines that each rank needs. Rank 0 reports on the whole batch."""
        return [(number == 0 or rank.logprobs, number == 0) for number, rank in enumerate(self._sharing)]

    async def plan(self, order: BatchOrder, outlines: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
        """Have each rank divide the batch, and return the leases of the groups that each one needs, by rank. ``outlines``: by rank."""
        given = [(order, *of_stores) for of_stores in outlines]
        return self.agreed(await self._together(await self._called("share_out", given)))

    async def plan_ahead(self, order: BatchOrder, outlines: Sequence[Sequence[Any]]) -> list[Future[Any]]:
        """Do the same as ``plan`` in parallel with training, without waiting for the answers. Pass the answers to ``agreed``."""
        return await self._called("share_out", [(order, *of_stores) for of_stores in outlines], beside=True)

    def agreed(self, answers: Sequence[RankShare]) -> list[tuple[int, ...]]:
        """Return the leases that each rank needs, by rank. Raise RunError if the ranks divided the batch differently: they would train some
        groups twice and others never."""
        other = next((rank for rank, answer in enumerate(answers) if answer.digest != answers[0].digest), None)
        if other is not None:
            raise RunError(
                f"trainer ranks 0 and {other} divide the same batch differently, so that some of its groups would be trained twice and "
                "others never; `cost` of the training backend must return the same value on every rank, also before it has the tokens "
                "(TrainingBackendSuite checks this)"
            )
        return [answer.leases for answer in answers]

    async def train(self, order: BatchOrder, log_rollouts: bool, groups: Sequence[Sequence[Any]]) -> list[TrainResult]:
        """Have the ranks make one update, and return their reports, rank 0 first. ``groups``: the stores' answers, by rank."""
        return await self._together(await self._called("train", [(order, log_rollouts, *of_stores) for of_stores in groups]))

    async def control(self, settings: Mapping[str, Any]) -> None:
        """Have the ranks use other values of settings from the next update on."""
        await self._together(await self._called("control", [(settings,)] * len(self.workers)))

    async def preload(self, groups: Sequence[Sequence[Any]]) -> list[Future[Any]]:
        """Send groups of a later batch to the ranks in parallel with training, without waiting for them. The value of each call is the
        leases of the rank's groups."""
        return await self._called("preload", groups, beside=True)

    async def _called(self, method: str, given: Sequence[Sequence[Any]], *, beside: bool = False) -> list[Future[Any]]:
        """Call a method of every rank; ``given``: its arguments by rank. Use a thread, because pickling a batch takes long and would block
        the schedule in this loop."""
        calls = list(zip(self.workers, given, strict=True))
        return await in_thread(lambda: [worker.call(method, *arguments, beside=beside) for worker, arguments in calls])

    def producer_left(self, name: str) -> Future[str]:
        """Report a producer's death to rank 0, so that no transfer of weights waits for it. The value is the publisher's reason for ending
        it, or ""."""
        return self.workers[0].call("producer_left", name, beside=True)

    def producer_to_end(self) -> Future[str | None]:
        """Return a call whose value is the next producer that the publisher has dropped and whose process must be ended; None if rank 0
        closes."""
        return self.workers[0].call("producer_to_end", beside=True)

    async def save(self, folder: Path) -> PendingSave:
        """Begin to write ``model/`` and ``trainer/`` below the folder. The next update may start when this returns."""
        await self._together([worker.call("save", folder.resolve()) for worker in self.workers])
        calls = [worker.call("saved", beside=True) for worker in self.workers]
        return _RanksSaving(calls, lambda: self._driver.run(self._together(calls)))

    async def failed(self, rank: int, error: BaseException) -> BaseException:
        """Return the error to report for an error of one rank: its death, or the death of another rank that caused the error, in one
        sentence."""
        if isinstance(error, WorkerDiedError):
            why = error.details or error
            return WorkerLostError(f"trainer rank {rank} of {len(self.workers)} died ({why})")
        alone = len(self.workers) == 1 or isinstance(error, UsageError | WorkerLostError)
        return error if alone else await self._driver.cause(error)


@dataclass(frozen=True, slots=True)
class _RanksSaving:
    """A checkpoint that all ranks write. ``result`` is for the thread that calls the runtime."""

    calls: Sequence[Future[Any]]
    result: Callable[[], object]

    def done(self) -> bool:
        return all(call.done() for call in self.calls)
