"""What a runtime gives the crew of a run: its services, whom a producer talks to, and a place for each worker."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass

from rlcore_plugin_workers.workers import Launcher, Placement, Worker

__all__ = ["Deployment", "Endpoints"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Whom a producer talks to: the schedule (``ScheduleService``), and store (``GroupStore``) and judge (``AsyncJudge``) of its node."""

    schedule: Worker
    store: Worker
    judge: Worker


class Deployment(ABC):
    """One for each run. ``launcher`` starts producers and ranks; ``schedule``: the ``ScheduleService``; ``address``: of the host where rank
    0 is placed; ``device``: of collectives between trainer and producers, ``cpu`` or ``cuda``.

    A store answers ``read`` with (the leases whose groups it lacks, what ``TrainerWorker.train`` gets as the groups of the others): the
    crew only passes the latter on.
    """

    launcher: Launcher
    schedule: Worker
    address: str
    device: str = "cpu"
    one_host = False
    """Whether all workers are on the driver's host, and so share its clock."""
    keep_scored = True
    """Whether the stores keep what was scored until ``take_scored``."""
    logs = "the output of this program"
    """Where a person finds what a worker wrote before it died."""

    def prepare(self) -> Future[Sequence[str]]:
        """Get ready for workers, which start once this is done; the answer: what the user should know of these hosts, a line each."""
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
        """Look for a placement for what replaces a producer that was lost; the answer is None if there is no room for one. Returns at once:
        whoever works must not wait for the search."""
        found: Future[Placement | None] = Future()
        found.set_result(placement)
        return found

    def stands(self, placement: Placement) -> bool:
        """Return whether the host of a placement is there, as far as is known."""
        return True

    @abstractmethod
    def endpoints(self, placement: Placement) -> Endpoints:
        """Return whom the producer in this placement talks to."""

    @abstractmethod
    def stores(self) -> Mapping[str, Worker]:
        """Return the stores of groups that are there, by name."""

    @abstractmethod
    def judges(self) -> Sequence[Worker]:
        """Return the judges that are there."""

    def services(self) -> Sequence[Worker]:
        """Return the services that are processes of their own (``lives`` is among their methods): the driver asks whether they answer, and
        kills one that does not. The schedule among them ends the run then; others must come back by themselves."""
        return ()

    def forget_lost(self) -> Sequence[str]:
        """Forget stores and judges that will not come back; return the names of the stores."""
        return ()
