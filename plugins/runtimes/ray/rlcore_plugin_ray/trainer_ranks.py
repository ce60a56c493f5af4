"""The trainer ranks of a run, as one: every call goes to all of them, and the death of one ends the run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ray.exceptions import ObjectLostError

from rlcore.api import UsageError
from rlcore.api.runtime import Order, Shipment, WorkerLostError
from rlcore_plugin_ray.driver_inbox import DriverInbox
from rlcore_plugin_ray.node_placement import Places
from rlcore_plugin_ray.remote import gist, is_death
from rlcore_plugin_ray.session import Seat, Session
from rlcore_plugin_ray.trainer_host import Trained, TrainerHost

__all__ = ["Ranks"]


class Ranks:
    """All methods are for the driver's thread. Rank 0 stands in the first bundle."""

    def __init__(self, session: Session, inbox: DriverInbox, shipment: Shipment, places: Places, group: Any) -> None:
        self._inbox = inbox
        self.actors = [
            session.actor(
                TrainerHost,
                shipment,
                rank,
                seat=Seat(group=group, bundle=rank, cpus=places.cpus, gpus=places.trainer_gpus),
                called=f"trainer-{rank}",
            )
            for rank in range(len(places.trainers))
        ]
        for rank, actor in enumerate(self.actors):
            life = actor.lifetime.options(concurrency_group="life").remote()
            inbox.watch(life, partial(self._ended, rank))

    def prepare(self, prompts: int, port: int | None) -> list[Any]:
        """Have them load and meet; references to wait for, the first of which gives the address of the weights."""
        rendezvous = ""
        if len(self.actors) > 1:
            (rendezvous,) = self._inbox.wait([self.actors[0].rendezvous.remote(port)], self.failed)
        return [actor.prepare.remote(prompts, rendezvous) for actor in self.actors]

    def start(self, probe_ids: np.ndarray | None, profiles: Path | None) -> None:
        """Hand out the weights of version 0. ``profiles``: the folder for the ranks' profiles, None for none."""
        files = [profiles / f"profile-trainer-{rank}.prof" if profiles else None for rank in range(len(self.actors))]
        calls = zip(self.actors, files, strict=True)
        self._inbox.wait([actor.start.remote(probe_ids, file) for actor, file in calls], self.failed)

    def close(self) -> list[Any]:
        """Have them leave each other; references to wait for."""
        return [actor.close.remote() for actor in self.actors]

    def train(self, order: Order, log_rollouts: bool, groups: Sequence[Any]) -> list[Any]:
        """Have them make one update; references for ``trained``. ``groups``: references to what the stores hold of it."""
        return [actor.train.remote(order, log_rollouts, *groups) for actor in self.actors]

    def preload(self, groups: Sequence[Any], then: Callable[[set[int]], None]) -> None:
        """Bring groups of a batch to come to every rank, beside what they do; ``then(leases)`` once all of them have them."""
        answers: list[tuple[int, ...]] = []

        def arrived(leases: Any, error: BaseException | None) -> None:
            if error is None:  # else they come with their batch
                answers.append(leases)
                if len(answers) == len(self.actors):
                    then(set(leases).intersection(*answers))

        for actor in self.actors:
            self._inbox.watch(actor.preload.options(concurrency_group="mail").remote(*groups), arrived)

    def trained(self, refs: Sequence[Any]) -> list[Trained]:
        """Wait for it; what every rank reports, rank 0 first."""
        return self._inbox.wait(refs, self.failed)

    def producer_left(self, name: str) -> None:
        """A producer died: no transfer of weights waits for it."""
        self.actors[0].producer_left.options(concurrency_group="mail").remote(name)

    def save(self, folder: Path) -> None:
        """``model/`` and ``trainer/`` below the folder."""
        self._all("save", folder.resolve())

    def _all(self, method: str, *args: Any) -> list[Any]:
        return self._inbox.wait([getattr(actor, method).remote(*args) for actor in self.actors], self.failed)

    def _ended(self, rank: int, value: Any, error: BaseException | None) -> None:
        if error is not None:
            raise self.failed(rank, error)

    def failed(self, rank: int, error: BaseException) -> BaseException:
        """The error of one rank; its death, or that of another rank that it had to do with, in one sentence."""
        if isinstance(error, ObjectLostError):
            return WorkerLostError(f"a node died while trainer rank {rank} read its groups, and the batch under way is lost with it")
        if not is_death(error):
            alone = len(self.actors) == 1 or isinstance(error, UsageError)
            return error if alone else self._inbox.cause(error)
        return WorkerLostError(f"trainer rank {rank} of {len(self.actors)} died, and the run cannot go on without it ({gist(error)})")
