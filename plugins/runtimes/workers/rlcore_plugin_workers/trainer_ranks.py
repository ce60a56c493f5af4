"""The trainer ranks of a run, as one: every call goes to all of them, and without one of them none can go on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.api import RunError, Saving, UsageError
from rlcore.api.runtime import WorkerLostError
from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.heartbeat import Heartbeats, Patience
from rlcore_plugin_workers.schedule_service import Order
from rlcore_plugin_workers.shipment import Shipment
from rlcore_plugin_workers.site import Site
from rlcore_plugin_workers.trainer_host import RankSharing, SharedOut, Trained, TrainerHost
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["Ranks"]


class Ranks:
    """All methods are for the driver's thread. Rank 0 publishes the weights."""

    def __init__(self, site: Site, inbox: DriverInbox, shipment: Shipment, count: int, patience: Patience) -> None:
        self._inbox, self._patience = inbox, patience
        self._sharing: list[RankSharing] = []
        self.workers = [
            site.launcher.start(
                TrainerHost, shipment, rank, site.address, site.device, name=f"trainer rank {rank}", seat=site.trainer_seat(rank)
            )
            for rank in range(count)
        ]
        for rank, worker in enumerate(self.workers):
            inbox.watch(worker.call("lifetime", beside=True), partial(self._ended, rank))

    def prepare(self, prompts: int, port: int | None) -> list[Future[Any]]:
        """Have them load and meet; the first one gives the address of the weights."""
        rendezvous = ""
        if len(self.workers) > 1:
            (rendezvous,) = self._inbox.wait(self._loading([self.workers[0].call("rendezvous", port)]), self.failed)
        return self._loading([worker.call("prepare", prompts, rendezvous) for worker in self.workers])

    def _loading(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        self._patience.while_loading(self._inbox, [worker.name for worker in self.workers[: len(calls)]], calls)
        return calls

    def watch(self, heartbeats: Heartbeats) -> None:
        """From here on each must answer the driver in time."""
        for rank, worker in enumerate(self.workers):
            heartbeats.watch(worker, lambda: True, partial(self._silent, rank))

    def _silent(self, rank: int, error: BaseException) -> None:
        raise WorkerLostError(f"trainer rank {rank} of {len(self.workers)} was lost ({error})")

    def _together(self, calls: Sequence[Future[Any]]) -> list[Any]:
        """Their answers. One that waits for ever, in a collective or on a file system, ends all of them at the deadline."""
        seconds = self._patience.trainer_seconds
        try:
            return self._inbox.wait(calls, self.failed, seconds)
        except TimeoutError as late:
            names = ", ".join(self.workers[number].name for number in late.args)
            raise WorkerLostError(
                f"{names} did not come back within {seconds:g} s; if an update or a checkpoint may take as long as that, raise "
                "--trainer-deadline"
            ) from None

    def start(self, probe_ids: np.ndarray | None, profiles: Path | None) -> None:
        """Hand out the weights that the run begins with. ``profiles``: the folder for the ranks' profiles, None for none."""
        files = [profiles / f"profile-trainer-{rank}.prof" if profiles else None for rank in range(len(self.workers))]
        calls = zip(self.workers, files, strict=True)
        self._together([worker.call("start", probe_ids, file) for worker, file in calls])

    def close(self) -> list[Future[Any]]:
        """Have them leave each other."""
        return [worker.call("close") for worker in self.workers]

    def learn_sharing(self) -> None:
        """Ask them, once they have loaded, how they share batches."""
        if len(self.workers) > 1:
            self._sharing = self._inbox.wait([worker.call("sharing") for worker in self.workers], self.failed)

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

    def plan(self, order: Order, outlines: Sequence[Sequence[Any]]) -> list[tuple[int, ...]]:
        """Have each share the batch out, and wait for it; the leases of the groups that it needs, by rank. ``outlines``: by rank."""
        return self.agreed(self._together(self._asked_to_plan(order, outlines, beside=False)))

    def plan_ahead(self, order: Order, outlines: Sequence[Sequence[Any]]) -> list[Future[Any]]:
        """``plan``, beside what they do; does not wait. What they answer is for ``agreed``."""
        return self._asked_to_plan(order, outlines, beside=True)

    def agreed(self, answers: Sequence[SharedOut]) -> list[tuple[int, ...]]:
        """The leases, by rank. RunError if they came to different shares: some groups would be trained twice, and others never."""
        other = next((rank for rank, answer in enumerate(answers) if answer.digest != answers[0].digest), None)
        if other is not None:
            raise RunError(
                f"trainer ranks 0 and {other} share the same batch out differently, so that some of its groups would be trained twice and "
                "others never: `cost` of the training backend must answer the same on every rank, also before it has the tokens; its "
                "TrainingBackendSuite tries that"
            )
        return [answer.leases for answer in answers]

    def _asked_to_plan(self, order: Order, outlines: Sequence[Sequence[Any]], *, beside: bool) -> list[Future[Any]]:
        calls = zip(self.workers, outlines, strict=True)
        return [worker.call("share_out", order, *of_stores, beside=beside) for worker, of_stores in calls]

    def train(self, order: Order, log_rollouts: bool, groups: Sequence[Sequence[Any]]) -> list[Trained]:
        """Have them make one update, and wait for it; what every rank reports, rank 0 first. ``groups``: by rank, what stores send."""
        calls = zip(self.workers, groups, strict=True)
        return self._together([worker.call("train", order, log_rollouts, *of_stores) for worker, of_stores in calls])

    def preload(self, groups: Sequence[Sequence[Any]], then: Callable[[list[set[int]]], None]) -> None:
        """Bring groups of a batch to come to the ranks, beside what they do; ``then(leases by rank)`` once all of them have theirs."""
        answers: dict[int, set[int]] = {}

        def arrived(rank: int, leases: Any, error: BaseException | None) -> None:
            if error is None:  # else they come with their batch
                answers[rank] = set(leases)
                if len(answers) == len(self.workers):
                    then([answers[number] for number in range(len(self.workers))])

        for rank, (worker, of_stores) in enumerate(zip(self.workers, groups, strict=True)):
            self._inbox.watch(worker.call("preload", *of_stores, beside=True), partial(arrived, rank))

    def producer_left(self, name: str) -> Future[str]:
        """A producer died: no transfer of weights waits for it. Why the publisher ended it, if it did."""
        return self.workers[0].call("producer_left", name, beside=True)

    def producer_to_end(self) -> Future[str | None]:
        """The next producer that the weights wait for no more, and whose process must be ended; None if rank 0 closes."""
        return self.workers[0].call("producer_to_end", beside=True)

    def save(self, folder: Path) -> Saving:
        """Begin ``model/`` and ``trainer/`` below the folder; the next update may be asked for when this returns."""
        self._together([worker.call("save", folder.resolve()) for worker in self.workers])
        calls = [worker.call("saved", beside=True) for worker in self.workers]
        return _RanksSaving(calls, lambda: self._together(calls))

    def _ended(self, rank: int, value: Any, error: BaseException | None) -> None:
        if error is not None:
            raise self.failed(rank, error)

    def failed(self, rank: int, error: BaseException) -> BaseException:
        """The error of one rank; its death, or that of another rank that it had to do with, in one sentence."""
        if isinstance(error, WorkerDiedError):
            why = error.details or error
            return WorkerLostError(f"trainer rank {rank} of {len(self.workers)} died ({why})")
        alone = len(self.workers) == 1 or isinstance(error, UsageError | WorkerLostError)
        return error if alone else self._inbox.cause(error)


@dataclass(frozen=True, slots=True)
class _RanksSaving:
    """What every rank writes."""

    calls: Sequence[Future[Any]]
    result: Callable[[], object]

    def done(self) -> bool:
        return all(call.done() for call in self.calls)
