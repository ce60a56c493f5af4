"""The producers of a run. The driver starts and watches them, replaces those that die, and gives up those that fail again and again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten
from typing import Any

from rlcore.api import DataError, PluginError, RunError, WeightsError
from rlcore.api.runtime import FilterError, GroupJob, ProbeFailedError, RewardBudgetError, WorkerLostError
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.driver_loop import DriverLoop, answered, first_error, in_thread
from rlcore_plugin_workers.heartbeat import Deadlines, watch_heartbeat
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_worker import ProducerWorker
from rlcore_plugin_workers.workers import Placement, Worker, WorkerDiedError

__all__ = ["ProducerPool"]

_REASON = 300
"""The greatest number of characters of an error that a warning repeats."""
_FATAL = (RewardBudgetError, DataError, FilterError, PluginError, ProbeFailedError)
"""Errors that end the run and not only the producer that raised them, because every other producer would raise them too. Any other
WeightsError also ends the run: see ``_is_lost``."""
_START_SECONDS = 120.0
"""How long a replacement process may take to start, without the loading of its engine."""
_LOOK_SECONDS = 5.0
"""The seconds between two checks whether the node of a starting process still exists, or whether a node has room again."""
_WHY_SECONDS = 2.0
"""How long rank 0 may take to say whether and why it ended a producer."""


@dataclass(slots=True)
class _ProducerSlot:
    """The state of one producer and its replacements. ``life`` counts the replacements. ``ending`` fails with the reason if the run decides
    to end the producer's process."""

    number: int
    placement: Placement
    ending: asyncio.Future[Any]
    worker: Worker | None = None
    life: int = 0
    failures: int = 0
    serves: bool = False
    given_up: bool = False
    unplaced_since: float | None = None
    """The time since which no node has had room for it."""
    last_reason: str = ""

    @property
    def away(self) -> bool:
        """Whether no process works for this member, and none is about to start."""
        return self.given_up or self.unplaced_since is not None

    @property
    def name(self) -> str:
        return f"producer-{self.number}" + (f".{self.life}" if self.life else "")


class ProducerPool:
    """All producers of a run. All methods are for the driver's loop, in which one task watches each member (``_keep``)."""

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
        """Set when a producer begins to serve, or when a member has no process any more."""
        self.on_loss: Callable[[str], Future[str]]
        """Called with the name of a lost producer, whose work is lost too. The value of the call is the publisher's reason for ending the
        producer, or ""."""
        for member in self._members:
            self._start(member)

    @property
    def workers(self) -> list[Worker]:
        """The producers that are alive."""
        return [member.worker for member in self._members if member.worker is not None]

    @property
    def serving(self) -> list[Worker]:
        """The producers that serve weights."""
        return [member.worker for member in self._members if member.worker is not None and member.serves]

    def prepare(self) -> list[Future[Any]]:
        """Have the first producers read data and load the model. An error here ends the run before it starts."""
        return self._in_time([worker.call("prepare") for worker in self.workers])

    def connect(self, address: Any) -> list[Future[Any]]:
        """Have the producers connect to the services and to the publisher of the weights at ``address``."""
        self._address = address
        return self._in_time([self._connected(member, worker) for member, worker in zip(self._members, self.workers, strict=True)])

    def _in_time(self, calls: list[Future[Any]]) -> list[Future[Any]]:
        """Watch the calls with the deadline of loading. A producer that misses it is stopped or hangs, and ends the run, which has not
        begun."""
        self._driver.watch(self._deadlines.while_loading([member.name for member in self._members], calls))
        return calls

    def _connected(self, member: _ProducerSlot, worker: Worker) -> Future[Any]:
        return worker.call("connect", self._deployment.endpoints(member.placement), self._address)

    async def failed(self, number: int, error: BaseException) -> BaseException:
        """Return the error to report for a producer that failed while it loaded: its death in one sentence, or its error."""
        if not isinstance(error, WorkerDiedError):
            return error
        return WorkerLostError(f"{self._members[number].name} died while it loaded ({error.details or error})")

    def run(self, profiles: Path | None) -> None:
        """Start the producers' work. ``profiles``: the folder for their profiles, None for no profiles."""
        self._profiles = profiles
        for member, worker in zip(self._members, self.workers, strict=True):
            self._driver.watch(self._keep(member, worker))

    async def wait_until_serving(self, version: int, deadline: float) -> None:
        """Wait until every producer serves weights. Raise WeightsError with the names of the others after ``deadline`` seconds."""
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
        """Have a producer evaluate the jobs. The value of the call is (version, results)."""
        return worker.call("evaluate", tuple(jobs), version)

    def overdue(self, names: Sequence[str]) -> None:
        """End these producers: they have prompts and have delivered no group before the deadline, even if they answer other calls."""
        why = f"it had prompts and delivered no group for {self._deadlines.lease_seconds:g} s"
        for name in names:
            self._end(name, f"{why}; if a group may take that long, raise --lease-deadline")

    def end(self, name: str) -> None:
        """End a producer that the publisher has dropped, and start another. Ignore the name of a producer that has ended already."""
        self._end(name, "the transfer of weights has dropped it")

    def _end(self, name: str, why: str) -> None:
        for member in self._members:
            if member.name == name and member.worker is not None and not member.ending.done():
                member.ending.set_exception(RunError(why))

    def stop(self) -> list[Future[Any]]:
        """Replace no producer from now on, and have all of them stop."""
        self._stopping = True
        return [worker.call("stop") for worker in self.serving]

    def remarks(self) -> list[str]:
        """Return the notes for the user about the whole run."""
        remarks = []
        if self._restarts:
            times = f"{self._restarts} time{'s' * (self._restarts > 1)}"
            remarks.append(f"producers were restarted {times}; the groups that they had in progress were generated again")
        return remarks + self._given_up

    # --- one producer ------------------------------------------------------------------------------------------------

    async def _keep(self, member: _ProducerSlot, worker: Worker) -> None:
        """Watch one member: replace its producer after each loss, until the run ends or the member is given up."""
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
        """Wait until process and engine are ready and connected, then watch the work. Raise the error that ends it."""
        seconds = self._deadlines.load_seconds
        try:
            async with asyncio.timeout(seconds) as limit:
                await self._wait_for_process(member, answered(worker.call("lives")))
                await answered(worker.call("prepare"))
                await answered(self._connected(member, worker))
        except TimeoutError:
            if not limit.expired():
                raise
            raise RunError(f"its model did not load within {seconds:g} s; raise --producer-load-deadline") from None
        await self._works(member, worker)

    async def _wait_for_process(self, member: _ProducerSlot, lives: asyncio.Future[Any]) -> None:
        """Wait until the process has started. If a node has gone away, a launcher may wait for ever, so check the node meanwhile."""
        started = time.monotonic()
        while not (await asyncio.wait([lives], timeout=_LOOK_SECONDS))[0]:
            if not await in_thread(self._deployment.stands, member.placement):
                raise RunError("its node is gone")
            if time.monotonic() - started > _START_SECONDS:
                raise RunError(f"its process did not start within {_START_SECONDS:g} s")
        await lives

    async def _works(self, member: _ProducerSlot, worker: Worker) -> None:
        """Watch a producer's work, and raise the error that ends it. The schedule must know the producer before it leases."""
        await answered(self._deployment.schedule.call("join", member.name))
        profile = self._profiles / f"profile-{member.name}.prof" if self._profiles else None
        raise await first_error(
            self._serves(member, answered(worker.call("serves"))),
            answered(worker.call("run", profile)),
            answered(worker.call("guard", self._deadlines.engine_seconds)),
            watch_heartbeat(worker, self._deadlines.silence_seconds),
        )

    async def _serves(self, member: _ProducerSlot, served: asyncio.Future[Any]) -> None:
        """Record that the producer serves weights. Raise RunError if a replacement does not serve in time; the run itself waits for the
        first ones."""
        seconds = self._deadlines.weights_seconds if member.life else None
        done, _ = await asyncio.wait([served], timeout=seconds)
        if not done:
            raise RunError(f"it served no weights within {seconds:g} s")
        if served.exception() is None:  # else its `run` raises the reason
            member.serves = True
            self._changed.set()

    async def _is_lost(self, error: BaseException) -> bool:
        """Return whether to replace the producer; raise the error instead if it ends the run."""
        if self._stopping:
            return False
        if isinstance(error, _FATAL):
            raise error
        if isinstance(error, WeightsError):
            raise await self._driver.cause(error)  # the first sign of a trainer's death in a producer
        return not self._is_of_the_schedule(error)

    def _is_of_the_schedule(self, error: BaseException) -> bool:
        """Return whether the error is the death of the coordinator, which the driver learns by itself."""
        return isinstance(error, WorkerDiedError) and error.name == self._deployment.schedule.name

    async def _lost(self, member: _ProducerSlot, worker: Worker, error: BaseException) -> str | None:
        """End the producer and return its leases, so that other producers make them. Return a sentence about the loss, or None if the run
        is ending. A delivery since its start resets the count of failures."""
        name, member.worker = member.name, None
        await in_thread(worker.kill)
        member.last_reason = shorten(await self._reason(name) or str(error), _REASON, placeholder=" …")
        try:
            leases, delivered = await answered(self._deployment.schedule.call("worker_lost", name))
        except WorkerDiedError:  # the driver learns of it by itself
            return None
        if self._stopping:
            return None
        member.failures = 1 if delivered else member.failures + 1
        for store in self._deployment.forget_lost():
            self._deployment.schedule.call("store_lost", store)
        again = f"; the {leases} groups that it had in progress are generated again" if leases else ""
        return f"{name} was lost ({member.last_reason}){again}"

    async def _reason(self, name: str) -> str:
        """Return rank 0's reason for ending the producer; "" if it did not end it or does not answer soon."""
        answer = answered(self.on_loss(name))
        await asyncio.wait([answer], timeout=_WHY_SECONDS)
        return str(answer.result()) if answer.done() and answer.exception() is None else ""

    async def _placement(self, member: _ProducerSlot, what: str) -> Placement | None:
        """Wait for a placement of the replacement and return it; None if the run ends first. ``what``: the sentence about the loss."""
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
        """Record that no node has room. The other producers continue, and the member looks for a placement from time to time."""
        now = time.monotonic()
        if member.unplaced_since is None:
            member.unplaced_since = now
            self._changed.set()
            self._given_up.append(
                f"producer-{member.number} was lost ({member.last_reason}), and for some time no node had room for a replacement"
            )
            left = sum(not other.away for other in self._members)
            others = f"the run continues with {left} producer{'s' * (left > 1)}" if left else "the run waits"
            self._say(f"warning: {what}: no node has room for a replacement; {others}, and starts one when a node has room")
        waited = min((now - other.unplaced_since for other in self._members if other.unplaced_since is not None), default=0.0)
        if all(other.away for other in self._members) and waited > self._deadlines.load_seconds:
            raise WorkerLostError(f"{what}: no producer is left, and no node has had room for one for {self._deadlines.load_seconds:g} s")

    def _give_up(self, member: _ProducerSlot, what: str) -> None:
        member.given_up = True
        self._changed.set()
        left = sum(not other.given_up for other in self._members)
        why = f"it failed {member.failures} times in a row"
        if not left:
            raise RunError(f"{what}: {why}, and no producer is left; see {self._deployment.logs}")  # no checkpoint can fix that
        self._given_up.append(f"producer-{member.number} was given up: {why} ({member.last_reason}); the run continued with {left}")
        self._say(f"warning: {what}: {why}; the run continues with {left} producer{'s' * (left > 1)}")
