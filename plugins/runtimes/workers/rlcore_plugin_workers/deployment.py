"""The interface between a runtime and the library: the services of a run, the endpoints of each producer, and a placement for each
worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from rlcore_plugin_workers.workers import Launcher, Placement, Worker

__all__ = ["Deployment", "Endpoints"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """The services that one producer calls: the schedule (``ScheduleService``), and the store (``GroupStore``) and judge (``AsyncJudge``)
    of its node."""

    schedule: Worker
    store: Worker
    judge: Worker


class Deployment(ABC):
    """The workers and services of one run.

    ``launcher`` starts producers and ranks. ``schedule`` is the worker of the ``ScheduleService``. ``address`` is the address of rank 0's
    host. ``device`` is the device of collectives between trainer and producers, ``cpu`` or ``cuda``.

    A store answers ``read`` with a pair: the leases whose groups it lacks, and the other groups in the form that ``TrainerWorker.train``
    expects. The driver only forwards the groups.
    """

    launcher: Launcher
    schedule: Worker
    address: str
    device: str = "cpu"
    one_host = False
    """Whether all workers are on the driver's host, so that they share its clock."""
    keep_scored = True
    """Whether the stores keep scored groups until ``take_scored``."""
    logs = "the output of this program"
    """Where users find the output of a worker that died."""

    def prepare(self) -> Future[Sequence[str]]:
        """Prepare for workers; the driver starts them when the future is done. The future's value is a list of notices about these hosts
        for the user, one line each."""
        done: Future[Sequence[str]] = Future()
        done.set_result(())
        return done

    @abstractmethod
    def trainer_placement(self, rank: int) -> Placement:
        """Return the placement of a rank."""

    @abstractmethod
    def producer_placement(self, number: int) -> Placement:
        """Return the placement of a producer."""

    def find_placement(self, placement: Placement) -> Future[Placement | None]:
        """Look for a placement for the replacement of a lost producer. The future's value is None if no node has room. Return at once: the
        search must not delay the other workers."""
        found: Future[Placement | None] = Future()
        found.set_result(placement)
        return found

    def stands(self, placement: Placement) -> bool:
        """Return whether the host of a placement is known to be available."""
        return True

    @abstractmethod
    def endpoints(self, placement: Placement) -> Endpoints:
        """Return the endpoints of the producer with this placement."""

    @abstractmethod
    def stores(self) -> Mapping[str, Worker]:
        """Return the available group stores, by name."""

    @abstractmethod
    def judges(self) -> Sequence[Worker]:
        """Return the available judges."""

    def services(self) -> Sequence[Worker]:
        """Return the services that have their own processes and a method ``lives``. The driver asks them whether they answer, and kills one
        that does not. The loss of the schedule ends the run; the other services must restart by themselves."""
        return ()

    def forget_lost(self) -> Sequence[str]:
        """Forget stores and judges that will not come back; return the names of the stores."""
        return ()
