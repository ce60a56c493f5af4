"""The producers of a run: started, watched, replaced where they die, given up where they fail again and again."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from rlcore.api import DataError, RunError, WeightsError
from rlcore.api.runtime import GroupJob, ProbeFailedError, RewardBudgetError, WorkerLostError
from rlcore_plugin_workers.driver_inbox import DriverInbox
from rlcore_plugin_workers.heartbeat import Heartbeats, Patience
from rlcore_plugin_workers.producer_host import ProducerHost
from rlcore_plugin_workers.shipment import Shipment
from rlcore_plugin_workers.site import Site
from rlcore_plugin_workers.workers import Seat, Worker, WorkerDiedError

__all__ = ["ProducerTeam"]

_REASON = 300
"""Characters of an error that a warning repeats, at most."""
_FATAL = (RewardBudgetError, DataError, ProbeFailedError)
"""Errors that end the run rather than the producer that raised them, for any other producer would raise them too. Any other WeightsError
also ends the run: see ``_ended``."""
_START_SECONDS = 120.0
"""How long a process that replaces another may take until it is there (its engine may take longer)."""
_LOOK_SECONDS = 5.0
"""Between two looks whether the node of a process that starts is still there, or whether a node has room again."""
_WHY_SECONDS = 2.0
"""How long rank 0 may take to say why it ended a producer, if it did."""


@dataclass(slots=True)
class _Member:
    """One producer's place, and who works there: ``life`` counts those who did before."""

    number: int
    seat: Seat
    worker: Worker | None = None
    life: int = 0
    failures: int = 0
    joined: bool = False
    serves: bool = False
    given_up: bool = False
    homeless_since: float | None = None
    """Since when no node has had room for it."""
    last_reason: str = ""

    @property
    def away(self) -> bool:
        """Whether nobody works there, and nobody is about to."""
        return self.given_up or self.homeless_since is not None

    @property
    def name(self) -> str:
        return f"producer-{self.number}" + (f".{self.life}" if self.life else "")


class ProducerTeam:
    """All methods are for the driver's thread; what happens between them arrives through its inbox."""

    def __init__(
        self, site: Site, inbox: DriverInbox, shipment: Shipment, count: int, *, patience: Patience, say: Callable[[str], None]
    ) -> None:
        self._site = site
        self._inbox = inbox
        self._shipment = shipment
        self._patience, self._heartbeats = patience, Heartbeats(inbox, patience.silence_seconds)
        self._say = say
        self._members = [_Member(number, site.producer_seat(number)) for number in range(count)]
        self._restarts = 0
        self._given_up: list[str] = []
        self._address: Any = None
        self._profiles: Path | None = None
        self._stopping = False
        self.on_loss: Callable[[str], Future[str]]
        """Told that a producer, and what it was doing, is lost; why the weights' publisher ended it, "" if it did not."""
        for member in self._members:
            self._start(member)

    @property
    def workers(self) -> list[Worker]:
        """The producers that live."""
        return [member.worker for member in self._members if member.worker is not None]

    @property
    def serving(self) -> list[Worker]:
        """Those of them that serve weights."""
        return [member.worker for member in self._members if member.worker is not None and member.serves]

    def prepare(self) -> list[Future[Any]]:
        """Have the first ones read data and model: what fails here ends the run before it starts."""
        return self._in_time([worker.call("prepare") for worker in self.workers])

    def connect(self, address: Any) -> list[Future[Any]]:
        """Have them meet the others; ``address``: of the weights."""
        self._address = address
        return self._in_time([self._connected(member, worker) for member, worker in zip(self._members, self.workers, strict=True)])

    def _in_time(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        """Whoever has not answered at the deadline of loading is stopped or hangs: that ends a run that has not begun."""
        self._patience.while_loading(self._inbox, [member.name for member in self._members], calls)
        return calls

    def _connected(self, member: _Member, worker: Worker) -> Future[Any]:
        return worker.call("connect", self._site.links(member.seat), self._address)

    def failed(self, number: int, error: BaseException) -> BaseException:
        """What became of one of them while it was prepared; its death in one sentence."""
        if not isinstance(error, WorkerDiedError):
            return error
        return WorkerLostError(f"{self._members[number].name} died while it loaded ({error.details or error})")

    def run(self, profiles: Path | None) -> None:
        """Let them work. ``profiles``: the folder for their profiles, None for none."""
        self._profiles = profiles
        for member, worker in zip(self._members, self.workers, strict=True):
            self._join(member, worker)

    def wait_until_serving(self, version: int, deadline: float) -> None:
        """Until every producer serves weights; WeightsError, naming those who do not, after ``deadline`` seconds."""
        wanted = [member for member in self._members if not member.away]
        if not self._inbox.until(lambda: all(member.serves or member.away for member in wanted), deadline):
            late = ", ".join(member.name for member in wanted if not member.serves and not member.away)
            raise WeightsError(
                f"{late} did not serve version {version} within {deadline:g} s of its publication by trainer rank 0; raise "
                "--weights-deadline, or choose another --transport"
            )

    def evaluate(self, worker: Worker, jobs: Sequence[GroupJob], version: int) -> Future[Any]:
        """(version, results)."""
        return worker.call("evaluate", tuple(jobs), version)

    def stop(self) -> list[Future[Any]]:
        """Nobody is replaced any more, and all end what they do."""
        self._stopping = True
        return [worker.call("stop") for worker in self.serving]

    def remarks(self) -> list[str]:
        """What of the whole run a person should read."""
        remarks = []
        if self._restarts:
            times = f"{self._restarts} time{'s' * (self._restarts > 1)}"
            remarks.append(f"producers were started anew {times}; what they had under way was generated again")
        return remarks + self._given_up

    # --- one of them -------------------------------------------------------------------------------------------------

    def _start(self, member: _Member) -> Worker:
        member.serves = member.joined = False
        member.worker = self._site.launcher.start(
            ProducerHost, self._shipment, member.name, member.number, name=member.name, seat=member.seat
        )
        return member.worker

    def _join(self, member: _Member, worker: Worker) -> None:
        """The schedule must know it before it leases."""
        member.joined = True
        profile = self._profiles / f"profile-{member.name}.prof" if self._profiles else None

        def joined(value: Any, error: BaseException | None) -> None:
            if error is not None or member.worker is not worker:
                return  # the coordinator's death is said elsewhere
            self._inbox.watch(worker.call("serves"), lambda value, error: self._served(member, worker, error))
            self._inbox.watch(worker.call("run", profile), lambda value, error: self._ended(member, worker, error))
            guarded = worker.call("guard", self._patience.engine_seconds)
            self._inbox.watch(guarded, lambda value, error: self._ended(member, worker, error))
            self._heartbeats.watch(worker, lambda: member.worker is worker, lambda error: self._ended(member, worker, error))
            if member.life:  # of the first ones, the run itself waits for
                self._inbox.after(self._patience.weights_seconds, lambda: self._late_to_serve(member, worker))

        self._inbox.watch(self._site.schedule.call("join", member.name), joined)

    def overdue(self, names: Sequence[str]) -> None:
        """These have prompts, and have delivered no group of them until the deadline, whatever else they answer."""
        for member in self._members:
            if member.name in names and member.worker is not None:
                why = f"it had prompts and delivered no group for {self._patience.lease_seconds:g} s"
                self._ended(member, member.worker, RunError(f"{why}; if one may take as long as that, raise --lease-deadline"))

    def end(self, name: str) -> None:
        """The weights wait for this one no more: end its process, and start another. A name of one that has ended already is none."""
        for member in self._members:
            if member.name == name and member.worker is not None:
                self._ended(member, member.worker, RunError("the transfer of weights waits for it no more"))

    def _late_to_serve(self, member: _Member, worker: Worker) -> None:
        if member.worker is worker and not member.serves:
            self._ended(member, worker, RunError(f"it served no weights within {self._patience.weights_seconds:g} s"))

    def _served(self, member: _Member, worker: Worker, error: BaseException | None) -> None:
        if error is None and member.worker is worker:
            member.serves = True

    def _ended(self, member: _Member, worker: Worker, error: BaseException | None) -> None:
        """React to the end of a producer's work, by an error or by ``stop``."""
        if self._stopping or error is None or member.worker is not worker:
            return
        if isinstance(error, _FATAL):
            raise error
        if isinstance(error, WeightsError):
            raise self._inbox.cause(error)  # what a producer sees first if the trainer dies
        if isinstance(error, WorkerDiedError) and error.name == self._site.schedule.name:
            return  # the driver itself is told of that
        name, member.worker = member.name, None
        worker.kill()
        reasons: list[str] = []

        def told(why: str | None, failure: BaseException | None) -> None:
            if not reasons:
                reasons.append(why or str(error))
                member.last_reason = shorten(reasons[0], _REASON, placeholder=" …")
                self._inbox.watch(self._site.schedule.call("worker_lost", name), lambda lost, failure: self._lost(member, name, lost))

        self._inbox.watch(self.on_loss(name), told)
        self._inbox.after(_WHY_SECONDS, lambda: told(None, None))

    def _lost(self, member: _Member, name: str, lost: tuple[int, int] | None) -> None:
        """Its leases are returned: somebody else makes them. Who delivered something since its start had a new beginning."""
        if lost is None or self._stopping:
            return
        leases, delivered = lost
        member.failures = 1 if delivered else member.failures + 1
        for store in self._site.forget_lost():
            self._site.schedule.call("store_lost", store)
        again = f"; the {leases} groups that it had under way are generated again" if leases else ""
        what = f"{name} was lost ({member.last_reason}){again}"
        if member.failures > self._patience.restarts:
            self._give_up(member, what)
        else:
            self._replace(member, what)

    def _replace(self, member: _Member, what: str) -> None:
        """Start another one in its place, once a seat is found; ``what`` happened."""

        def found(seat: Seat | None, error: BaseException | None) -> None:
            if error is not None:
                raise error
            if self._stopping or member.worker is not None:
                return
            if seat is None:
                self._without_room(member, what)
                return
            why = "a node has room again" if member.homeless_since is not None else f"warning: {what}"
            member.homeless_since = None
            member.life, member.seat = member.life + 1, seat
            self._restarts += 1
            self._load(member, self._start(member))
            self._say(f"{why}; {member.name} takes its place")

        self._inbox.watch(self._site.new_seat(member.seat), found)

    def _without_room(self, member: _Member, what: str) -> None:
        """No node has room: the others go on, and from time to time a place is looked for."""
        now = time.monotonic()
        if member.homeless_since is None:
            member.homeless_since = now
            self._given_up.append(f"producer-{member.number} lost its place ({member.last_reason}), and for a time no node had room for it")
            left = sum(not other.away for other in self._members)
            others = f"the run goes on with {left} producer{'s' * (left > 1)}" if left else "the run waits for one"
            self._say(f"warning: {what}: no node has room for another; {others}, and takes the place again once a node has room")
        waited = min((now - other.homeless_since for other in self._members if other.homeless_since is not None), default=0.0)
        if all(other.away for other in self._members) and waited > self._patience.load_seconds:
            raise WorkerLostError(f"{what}: for {self._patience.load_seconds:g} s no node has had room for a producer, and none is left")
        self._inbox.after(_LOOK_SECONDS, lambda: None if self._stopping else self._replace(member, what))

    def _load(self, member: _Member, worker: Worker) -> None:
        """Until it works again: its process, its engine, its links, each after the other."""
        here: list[int] = []

        def connected(value: Any, error: BaseException | None) -> None:
            if error is not None:
                self._ended(member, worker, error)
            elif member.worker is worker:
                self._join(member, worker)

        def prepared(value: Any, error: BaseException | None) -> None:
            if error is not None:
                self._ended(member, worker, error)
            elif member.worker is worker:
                self._inbox.watch(self._connected(member, worker), connected)

        started = time.monotonic()

        def look() -> None:
            """A launcher may wait for ever for a node that has gone away."""
            if here or member.worker is not worker:
                return
            if not self._site.stands(member.seat):
                self._ended(member, worker, RunError("its node has gone away"))
            elif time.monotonic() - started > _START_SECONDS:
                self._ended(member, worker, RunError(f"its process was not there after {_START_SECONDS:g} s"))
            else:
                self._inbox.after(_LOOK_SECONDS, look)

        def stuck() -> None:
            if not member.joined:
                why = f"its model was not loaded after {self._patience.load_seconds:g} s; raise --producer-load-deadline"
                self._ended(member, worker, RunError(why))

        self._inbox.watch(worker.call("lives"), lambda pid, error: here.append(pid) if error is None else None)
        self._inbox.after(_LOOK_SECONDS, look)
        self._inbox.after(self._patience.load_seconds, stuck)
        self._inbox.watch(worker.call("prepare"), prepared)

    def _give_up(self, member: _Member, what: str) -> None:
        member.given_up = True
        left = sum(not other.given_up for other in self._members)
        why = f"it failed {member.failures} times in a row"
        if not left:
            raise RunError(f"{what}: {why}, and no producer is left; its own words are in {self._site.logs}")  # no checkpoint mends that
        self._given_up.append(f"producer-{member.number} was given up: {why} ({member.last_reason}); the run went on with {left}")
        self._say(f"warning: {what}: {why}; the run goes on with {left} producer{'s' * (left > 1)}")
