"""The producers of a run: started, watched, replaced where they die, given up where they fail again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from rlcore.api import DataError, RunError, WeightsError
from rlcore.api.runtime import GroupJob, ProbeFailedError, RewardBudgetError, WorkerLostError
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.driver_loop import DriverLoop, answered, first_error, in_thread
from rlcore_plugin_workers.heartbeat import Deadlines, watch_heartbeat
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.workers import Placement, Worker, WorkerDiedError

__all__ = ["ProducerPool"]

_REASON = 300
"""Characters of an error that a warning repeats, at most."""
_FATAL = (RewardBudgetError, DataError, ProbeFailedError)
"""Errors that end the run rather than the producer that raised them, for any other producer would raise them too. Any other WeightsError
also ends the run: see ``_is_lost``."""
_START_SECONDS = 120.0
"""How long a process that replaces another may take until it is there (its engine may take longer)."""
_LOOK_SECONDS = 5.0
"""Between two looks whether the node of a process that starts is still there, or whether a node has room again."""
_WHY_SECONDS = 2.0
"""How long rank 0 may take to say why it ended a producer, if it did."""


@dataclass(slots=True)
class _ProducerSlot:
    """One producer's place, and who works there: ``life`` counts those who did before. ``ending``: fails with the reason if the run decides
    that its process must end."""

    number: int
    placement: Placement
    ending: asyncio.Future[Any]
    worker: Worker | None = None
    life: int = 0
    failures: int = 0
    serves: bool = False
    given_up: bool = False
    unplaced_since: float | None = None
    """Since when no node has had room for it."""
    last_reason: str = ""

    @property
    def away(self) -> bool:
        """Whether nobody works there, and nobody is about to."""
        return self.given_up or self.unplaced_since is not None

    @property
    def name(self) -> str:
        return f"producer-{self.number}" + (f".{self.life}" if self.life else "")


class ProducerPool:
    """All methods are for the driver's loop, in which a task keeps each place (``_keep``)."""

    def __init__(
        self,
        deployment: Deployment,
        driver: DriverLoop,
        plan_bundle: PlanBundle,
        count: int,
        *,
        deadlines: Deadlines,
        say: Callable[[str], None],
    ) -> None:
        self._deployment = deployment
        self._driver = driver
        self._plan_bundle = plan_bundle
        self._deadlines = deadlines
        self._say = say
        loop = asyncio.get_running_loop()
        self._members = [_ProducerSlot(number, deployment.producer_placement(number), loop.create_future()) for number in range(count)]
        self._restarts = 0
        self._given_up: list[str] = []
        self._address: Any = None
        self._profiles: Path | None = None
        self._stopping = False
        self._changed = asyncio.Event()
        """Set when a producer begins to serve, or leaves its place empty."""
        self.on_loss: Callable[[str], Future[str]]
        """Called when a producer, and what it was doing, is lost. Answers why the weights' publisher ended it, "" if it did not."""
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
        self._driver.watch(self._deadlines.while_loading([member.name for member in self._members], calls))
        return calls

    def _connected(self, member: _ProducerSlot, worker: Worker) -> Future[Any]:
        return worker.call("connect", self._deployment.endpoints(member.placement), self._address)

    async def failed(self, number: int, error: BaseException) -> BaseException:
        """What became of one of them while it was prepared; its death in one sentence."""
        if not isinstance(error, WorkerDiedError):
            return error
        return WorkerLostError(f"{self._members[number].name} died while it loaded ({error.details or error})")

    def run(self, profiles: Path | None) -> None:
        """Let them work. ``profiles``: the folder for their profiles, None for none."""
        self._profiles = profiles
        for member, worker in zip(self._members, self.workers, strict=True):
            self._driver.watch(self._keep(member, worker))

    async def wait_until_serving(self, version: int, deadline: float) -> None:
        """Until every producer serves weights; WeightsError, naming those who do not, after ``deadline`` seconds."""
        wanted = [member for member in self._members if not member.away]
        try:
            async with asyncio.timeout(deadline):
                while not all(member.serves or member.away for member in wanted):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            late = ", ".join(member.name for member in wanted if not member.serves and not member.away)
            if not late:
                return
            raise WeightsError(
                f"{late} did not serve version {version} within {deadline:g} s of its publication by trainer rank 0; raise "
                "--weights-deadline, or choose another --transport"
            ) from None

    def evaluate(self, worker: Worker, jobs: Sequence[GroupJob], version: int) -> Future[Any]:
        """(version, results)."""
        return worker.call("evaluate", tuple(jobs), version)

    def overdue(self, names: Sequence[str]) -> None:
        """These have prompts, and have delivered no group of them until the deadline, whatever else they answer."""
        why = f"it had prompts and delivered no group for {self._deadlines.lease_seconds:g} s"
        for name in names:
            self._end(name, f"{why}; if one may take as long as that, raise --lease-deadline")

    def end(self, name: str) -> None:
        """The weights wait for this one no more: end its process, and start another. A name of one that has ended already is none."""
        self._end(name, "the transfer of weights waits for it no more")

    def _end(self, name: str, why: str) -> None:
        for member in self._members:
            if member.name == name and member.worker is not None and not member.ending.done():
                member.ending.set_exception(RunError(why))

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

    async def _keep(self, member: _ProducerSlot, worker: Worker) -> None:
        """Keep a place: a producer that is lost is replaced, until the run ends or the place is given up."""
        error = await first_error(self._works(member, worker), member.ending)
        while await self._is_lost(error) and (what := await self._lost(member, worker, error)) is not None:
            if member.failures > self._deadlines.restarts:
                self._give_up(member, what)
                return
            placement = await self._placement(member, what)
            if placement is None:
                return
            worker = self._replace(member, placement, what)
            error = await first_error(self._load_and_run(member, worker), member.ending)

    def _start(self, member: _ProducerSlot) -> Worker:
        member.serves, member.ending = False, asyncio.get_running_loop().create_future()
        member.worker = self._deployment.launcher.start(
            ProducerWorker, self._plan_bundle, member.name, member.number, name=member.name, placement=member.placement
        )
        return member.worker

    async def _load_and_run(self, member: _ProducerSlot, worker: Worker) -> None:
        """Raise what ends it: while its process, its engine and its endpoints come, each after the other, or at work."""
        seconds = self._deadlines.load_seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._wait_for_process(member, answered(worker.call("lives")))
                await answered(worker.call("prepare"))
                await answered(self._connected(member, worker))
        except TimeoutError:
            if not limit.expired():
                raise
            raise RunError(f"its model was not loaded after {seconds:g} s; raise --producer-load-deadline") from None
        await self._works(member, worker)

    async def _wait_for_process(self, member: _ProducerSlot, lives: asyncio.Future[Any]) -> None:
        """Wait for its process. A launcher may wait for ever for a node that has gone away."""
        started = time.monotonic()
        while not (await asyncio.wait([lives], timeout=_LOOK_SECONDS))[0]:
            if not await in_thread(self._deployment.stands, member.placement):
                raise RunError("its node has gone away")
            if time.monotonic() - started > _START_SECONDS:
                raise RunError(f"its process was not there after {_START_SECONDS:g} s")
        await lives

    async def _works(self, member: _ProducerSlot, worker: Worker) -> None:
        """Raise what ends its work. The schedule must know it before it leases."""
        await answered(self._deployment.schedule.call("join", member.name))
        profile = self._profiles / f"profile-{member.name}.prof" if self._profiles else None
        raise await first_error(
            self._serves(member, answered(worker.call("serves"))),
            answered(worker.call("run", profile)),
            answered(worker.call("guard", self._deadlines.engine_seconds)),
            watch_heartbeat(worker, self._deadlines.silence_seconds),
        )

    async def _serves(self, member: _ProducerSlot, served: asyncio.Future[Any]) -> None:
        """Note that it serves; RunError if one that replaces another does not in time. For the first ones the run itself waits."""
        seconds = self._deadlines.weights_seconds if member.life else None
        done, _ = await asyncio.wait([served], timeout=seconds)
        if not done:
            raise RunError(f"it served no weights within {seconds:g} s")
        if served.exception() is None:  # else its run says why
            member.serves = True
            self._changed.set()

    async def _is_lost(self, error: BaseException) -> bool:
        """Whether the producer is to be replaced; raise what ends the run in its place."""
        if self._stopping:
            return False
        if isinstance(error, _FATAL):
            raise error
        if isinstance(error, WeightsError):
            raise await self._driver.cause(error)  # what a producer sees first if the trainer dies
        return not self._is_of_the_schedule(error)

    def _is_of_the_schedule(self, error: BaseException) -> bool:
        """Whether it is the coordinator's death, which the driver hears of by itself."""
        return isinstance(error, WorkerDiedError) and error.name == self._deployment.schedule.name

    async def _lost(self, member: _ProducerSlot, worker: Worker, error: BaseException) -> str | None:
        """End it and return its leases: somebody else makes them. What happened, in a sentence; None if the run ends meanwhile. Who
        delivered something since its start had a new beginning."""
        name, member.worker = member.name, None
        await in_thread(worker.kill)
        member.last_reason = shorten(await self._reason(name) or str(error), _REASON, placeholder=" …")
        try:
            leases, delivered = await answered(self._deployment.schedule.call("worker_lost", name))
        except WorkerDiedError:  # the driver hears of it by itself
            return None
        if self._stopping:
            return None
        member.failures = 1 if delivered else member.failures + 1
        for store in self._deployment.forget_lost():
            self._deployment.schedule.call("store_lost", store)
        again = f"; the {leases} groups that it had under way are generated again" if leases else ""
        return f"{name} was lost ({member.last_reason}){again}"

    async def _reason(self, name: str) -> str:
        """Why rank 0 ended it, "" if it did not, or does not say so soon."""
        answer = answered(self.on_loss(name))
        await asyncio.wait([answer], timeout=_WHY_SECONDS)
        return str(answer.result()) if answer.done() and answer.exception() is None else ""

    async def _placement(self, member: _ProducerSlot, what: str) -> Placement | None:
        """A placement for what replaces it, once there is one; None if the run ends before. ``what`` happened."""
        while not self._stopping:
            placement = await answered(self._deployment.find_placement(member.placement))
            if placement is not None:
                return None if self._stopping else placement
            self._without_placement(member, what)
            await asyncio.sleep(_LOOK_SECONDS)
        return None

    def _replace(self, member: _ProducerSlot, placement: Placement, what: str) -> Worker:
        why = "a node has room again" if member.unplaced_since is not None else f"warning: {what}"
        member.unplaced_since = None
        member.life, member.placement = member.life + 1, placement
        self._restarts += 1
        worker = self._start(member)
        self._say(f"{why}; {member.name} takes its place")
        return worker

    def _without_placement(self, member: _ProducerSlot, what: str) -> None:
        """No node has room: the others go on, and from time to time a place is looked for."""
        now = time.monotonic()
        if member.unplaced_since is None:
            member.unplaced_since = now
            self._changed.set()
            self._given_up.append(f"producer-{member.number} lost its place ({member.last_reason}), and for a time no node had room for it")
            left = sum(not other.away for other in self._members)
            others = f"the run goes on with {left} producer{'s' * (left > 1)}" if left else "the run waits for one"
            self._say(f"warning: {what}: no node has room for another; {others}, and takes the place again once a node has room")
        waited = min((now - other.unplaced_since for other in self._members if other.unplaced_since is not None), default=0.0)
        if all(other.away for other in self._members) and waited > self._deadlines.load_seconds:
            raise WorkerLostError(f"{what}: for {self._deadlines.load_seconds:g} s no node has had room for a producer, and none is left")

    def _give_up(self, member: _ProducerSlot, what: str) -> None:
        member.given_up = True
        self._changed.set()
        left = sum(not other.given_up for other in self._members)
        why = f"it failed {member.failures} times in a row"
        if not left:
            raise RunError(
                f"{what}: {why}, and no producer is left; its own words are in {self._deployment.logs}"
            )  # no checkpoint mends that
        self._given_up.append(f"producer-{member.number} was given up: {why} ({member.last_reason}); the run went on with {left}")
        self._say(f"warning: {what}: {why}; the run goes on with {left} producer{'s' * (left > 1)}")
