"""The producers of a run: started, watched, replaced where they die, given up where they fail again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, DataError, RunError, WeightsError
from rlcore.api.runtime import GroupJob, RewardBudgetError, Shipment, WorkerLostError
from rlcore_plugin_ray.driver_inbox import DriverInbox
from rlcore_plugin_ray.node_placement import Places
from rlcore_plugin_ray.node_services import NodeServices
from rlcore_plugin_ray.producer_host import ProducerHost
from rlcore_plugin_ray.remote import COORDINATOR, CalleeDiedError, gist, is_death, is_out_of_memory
from rlcore_plugin_ray.session import Seat, Session

__all__ = ["Patience", "ProducerTeam"]

_THREADS = 8
"""Of a producer's actor: one runs its loop, one guards it, the others wait for evaluations, reports and sleep."""
_FATAL = (RewardBudgetError, DataError)
"""Errors that end the run rather than the producer that raised them, for any other producer would raise them too. A WeightsError also ends
the run: see ``_ended``."""
_START_SECONDS = 120.0
"""How long an actor that replaces another may take until its process is there (its engine may take longer): where a node goes away
at the wrong moment, Ray waits for ever for it to come back."""

_ROOM_SECONDS = 5.0
"""How long Ray may look for a node that has room for an actor whose own node is gone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Limits for one producer: failures in a row without a delivery; seconds for one engine answer. Only replacements: ``load_seconds`` to
    load, then ``weights_seconds`` to serve. The run itself waits for the first producers."""

    restarts: int
    engine_seconds: float
    load_seconds: float
    weights_seconds: float


@dataclass(slots=True)
class _Seat:
    """One producer's place, and who sits there: ``life`` counts those who sat there before."""

    number: int
    node: str
    group: Any
    bundle: int
    actor: Any = None
    life: int = 0
    failures: int = 0
    joined: bool = False
    serves: bool = False
    given_up: bool = False
    last_reason: str = ""

    @property
    def name(self) -> str:
        return f"producer-{self.number}" + (f".{self.life}" if self.life else "")


@dataclass(slots=True)
class _Counts:
    restarts: int = 0
    given_up: list[str] = field(default_factory=list)


class ProducerTeam:
    """All methods are for the driver's thread; what happens between them arrives through its inbox."""

    def __init__(
        self,
        session: Session,
        inbox: DriverInbox,
        services: NodeServices,
        schedule: Any,
        shipment: Shipment,
        places: Places,
        *,
        patience: Patience,
        say: Callable[[str], None],
    ) -> None:
        self._session = session
        self._inbox = inbox
        self._services = services
        self._schedule = schedule
        self._shipment = shipment
        self._places = places
        self._patience = patience
        self._say = say
        self._seats: list[_Seat] = []
        self._counts = _Counts()
        self._address: Any = None
        self._profiles: Path | None = None
        self._stopping = False
        self.on_loss: Callable[[str], None] = lambda name: None
        """Told that a producer, and what it was doing, is lost."""

    @property
    def actors(self) -> list[Any]:
        """The producers that live."""
        return [seat.actor for seat in self._seats if seat.actor is not None]

    @property
    def serving(self) -> list[Any]:
        """Those of them that serve weights."""
        return [seat.actor for seat in self._seats if seat.actor is not None and seat.serves]

    def create(self, group: Any) -> None:
        """Make the actors, so that they load while others do."""
        for number, node in enumerate(self._places.producers):
            seat = _Seat(number, node, group, self._places.producer_bundle(number))
            self._seats.append(seat)
            self._sit(seat)

    def prepare(self) -> list[Any]:
        """Have the first ones read data and model; references to wait for: what fails here ends the run before it starts."""
        return [seat.actor.prepare.remote() for seat in self._seats]

    def connect(self, address: Any) -> list[Any]:
        """Have them meet the others; ``address``: of the weights. References to wait for."""
        self._address = address
        return [self._connected(seat) for seat in self._seats]

    def _connected(self, seat: _Seat) -> Any:
        return seat.actor.connect.remote(self._services.links(seat.node), self._address)

    def failed(self, number: int, error: BaseException) -> BaseException:
        """What became of one of them while it was prepared; its death in one sentence."""
        if not is_death(error):
            return error
        why = f" ({gist(error)})" if is_out_of_memory(error) else "; see its node's Ray log"
        return WorkerLostError(f"{self._seats[number].name} died while it loaded{why}")

    def run(self, profiles: Path | None) -> None:
        """Let them work. ``profiles``: the folder for their profiles, None for none."""
        self._profiles = profiles
        for seat in self._seats:
            self._join(seat)

    def wait_until_serving(self, version: int, deadline: float) -> None:
        """Until every producer serves weights; WeightsError, naming those who do not, after ``deadline`` seconds."""
        wanted = [seat for seat in self._seats if not seat.given_up]
        if not self._inbox.until(lambda: all(seat.serves or seat.given_up for seat in wanted), deadline):
            late = ", ".join(seat.name for seat in wanted if not seat.serves and not seat.given_up)
            raise WeightsError(
                f"{late} did not serve version {version} within {deadline:g} s of its publication by trainer rank 0; raise "
                "--weights-deadline, or choose another --transport"
            )

    def evaluate(self, actor: Any, jobs: Sequence[GroupJob], version: int) -> Any:
        """A reference to (version, results)."""
        return actor.evaluate.remote(tuple(jobs), version)

    def stop(self) -> list[Any]:
        """Nobody is replaced any more, and all end what they do; references to wait for, should that matter."""
        self._stopping = True
        return [actor.stop.remote() for actor in self.serving]

    def remarks(self) -> list[str]:
        """What of the whole run a person should read."""
        remarks = []
        if self._counts.restarts:
            times = f"{self._counts.restarts} time{'s' * (self._counts.restarts > 1)}"
            remarks.append(f"producers were started anew {times}; what they had under way was generated again")
        return remarks + self._counts.given_up

    # --- one seat ----------------------------------------------------------------------------------------------------

    def _sit(self, seat: _Seat) -> None:
        places = self._places
        seat.serves = seat.joined = False
        seat.actor = self._session.actor(
            ProducerHost,
            self._shipment,
            seat.name,
            seat=Seat(group=seat.group, bundle=seat.bundle, cpus=places.cpus, gpus=places.producer_gpus),
            called=seat.name,
            threads=_THREADS,
        )

    def _join(self, seat: _Seat) -> None:
        """The schedule must know it before it leases."""
        seat.joined = True
        actor, name = seat.actor, seat.name
        profile = self._profiles / f"profile-{name}.prof" if self._profiles else None

        def joined(value: Any, error: BaseException | None) -> None:
            if error is not None or seat.actor is not actor:
                return  # the coordinator's death is said elsewhere
            self._inbox.watch(actor.serves.remote(), lambda value, error: self._served(seat, actor, error))
            self._inbox.watch(actor.run.remote(profile), lambda value, error: self._ended(seat, actor, error))
            self._inbox.watch(actor.guard.remote(self._patience.engine_seconds), lambda value, error: self._ended(seat, actor, error))
            if seat.life:  # of the first ones, the run itself waits for
                self._inbox.after(self._patience.weights_seconds, lambda: self._late_to_serve(seat, actor))

        self._inbox.watch(self._schedule.join.remote(name), joined)

    def _late_to_serve(self, seat: _Seat, actor: Any) -> None:
        if seat.actor is actor and not seat.serves:
            self._ended(seat, actor, RunError(f"it served no weights within {self._patience.weights_seconds:g} s"))

    def _served(self, seat: _Seat, actor: Any, error: BaseException | None) -> None:
        if error is None and seat.actor is actor:
            seat.serves = True

    def _ended(self, seat: _Seat, actor: Any, error: BaseException | None) -> None:
        """React to the end of a producer's work, by an error or by ``stop``."""
        if self._stopping or error is None or seat.actor is not actor:
            return
        if isinstance(error, WeightsError):
            raise self._inbox.cause(error)  # what a producer sees first if the trainer dies
        if isinstance(error, _FATAL):
            raise error
        if isinstance(error, CalleeDiedError) and str(error) == COORDINATOR:
            return  # the driver itself is told of that
        self.on_loss(seat.name)
        if isinstance(error, CalleeDiedError):
            seat.last_reason = f"the process of {error} died"
        else:
            seat.last_reason = f"the process of {seat.name} died" if is_death(error) and not is_out_of_memory(error) else gist(error)
        name, seat.actor = seat.name, None
        self._session.kill(actor)
        self._inbox.watch(self._schedule.worker_lost.remote(name), lambda lost, failure: self._lost(seat, name, lost, failure))

    def _lost(self, seat: _Seat, name: str, lost: tuple[int, int] | None, failure: BaseException | None) -> None:
        """Its leases are returned: somebody else makes them. Who delivered something since its start had a new beginning."""
        if lost is None or self._stopping:
            return
        leases, delivered = lost
        seat.failures = 1 if delivered else seat.failures + 1
        self._forget_dead_nodes()
        again = f"; the {leases} groups that it had under way are generated again" if leases else ""
        what = f"{name} was lost ({seat.last_reason}){again}"
        if seat.failures > self._patience.restarts or not self._reseat(seat):
            self._give_up(seat, what)
        else:
            self._counts.restarts += 1
            self._say(f"warning: {what}; {seat.name} takes its place")

    def _reseat(self, seat: _Seat) -> bool:
        """Put a new actor in its place, or, if its node is gone, on a node that Ray chooses; return False if none has room."""
        seat.life += 1
        if seat.node not in {node.node_id for node in self._session.nodes()}:
            needs = (None, self._places.cpus, self._places.producer_gpus)
            try:
                seat.group, seat.bundle = self._session.reserve([needs], seconds=_ROOM_SECONDS), 0
            except ConfigError:
                return False
            seat.node = self._session.home(seat.group, seat.bundle)
        self._sit(seat)
        self._load(seat, seat.actor)
        return True

    def _load(self, seat: _Seat, actor: Any) -> None:
        """Until it works again: its process, its engine, its links, each after the other."""
        here: list[int] = []

        def connected(value: Any, error: BaseException | None) -> None:
            if error is not None:
                self._ended(seat, actor, error)
            elif seat.actor is actor:
                self._join(seat)

        def prepared(value: Any, error: BaseException | None) -> None:
            if error is not None:
                self._ended(seat, actor, error)
            elif seat.actor is actor:
                self._inbox.watch(self._connected(seat), connected)

        def late() -> None:
            if not here:
                self._ended(seat, actor, RunError(f"its process was not there after {_START_SECONDS:g} s"))

        def stuck() -> None:
            if seat.actor is actor and not seat.joined:
                why = f"its model was not loaded after {self._patience.load_seconds:g} s; raise --producer-load-deadline"
                self._ended(seat, actor, RunError(why))

        self._inbox.watch(actor.lives.remote(), lambda pid, error: here.append(pid) if error is None else None)
        self._inbox.after(_START_SECONDS, late)
        self._inbox.after(self._patience.load_seconds, stuck)
        self._inbox.watch(actor.prepare.remote(), prepared)

    def _give_up(self, seat: _Seat, what: str) -> None:
        seat.given_up = True
        left = sum(not other.given_up for other in self._seats)
        why = f"it failed {seat.failures} times in a row" if seat.failures > self._patience.restarts else "no node has room for another"
        if not left:
            raise WorkerLostError(f"{what}: {why}, and no producer is left; its own words are in the logs of Ray's session folder")
        self._counts.given_up.append(f"producer-{seat.number} was given up: {why} ({seat.last_reason}); the run went on with {left}")
        self._say(f"warning: {what}: {why}; the run goes on with {left} producer{'s' * (left > 1)}")

    def _forget_dead_nodes(self) -> None:
        for store in self._services.drop_dead():
            self._schedule.store_lost.remote(store)
