"""The runtime with worker processes: a launcher starts producers and trainer ranks as workers, and the deployment offers the schedule, the
stores and the judges as services.

The driver is one asyncio program, in its own thread (``driver_loop.py``). The thread that calls the runtime hands it one coroutine at a
time and sleeps: ``next_batch``, ``train``, ``save`` and so on. From ``begin`` on, these tasks run in parallel with it:

    task                    consumes                      waits for, and is unblocked by
    ----------------------  ----------------------------  ------------------------------------------------------------------------
    ProducerPool._keep      failures of one producer      its `run` and `guard` (an error, its death), silence, `ending`
    TrainerRanks._lifetime         failures of one rank          its `lifetime` (an error of a transfer, its death)
    TrainerRanks._must_answer      heartbeats of one rank        `lives`, or the deadline
    _watch_services         services of the deployment    a timer, then the list of services; one task for each asks `lives`
    _listen_for_notes       notes of the schedule         `next_notes`: a message for the user
    _end_unwanted           names of producers            `producer_to_end` of rank 0: the publisher has dropped one
    _look_for_overdue       names of producers            a timer, then `overdue` of the schedule
    EvaluationRunner._evaluate   versions to evaluate          `evaluate` of producers
    BatchReader._ahead      the next batch, if ready      `read`, `share_out`, `preload`; no task waits for it
    StatsCollector._taken         figures, failures, seconds    an answer of a service or producer; no task waits for it

No task polls for an answer. An error of one of these tasks ends the wait of the run; so does Ctrl-C, which calls ``_interrupt``. The driver
asks for figures, failures and times while the ranks train, so that nothing waits for them between two updates.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

from rlcore.api import ConfigError, Group, PendingSave, RlcoreError, RunError
from rlcore.api.runtime import (
    FilterMonitor,
    Interrupt,
    Plan,
    ProbeFailedError,
    Runtime,
    Status,
    TaskReport,
    Texts,
    Timing,
    Update,
    WorkerLostError,
    first_version,
    make_evaluator,
    schedule_settings,
    with_prompts,
)
from rlcore_plugin_workers.batch_reader import BatchReader
from rlcore_plugin_workers.deployment import Deployment
from rlcore_plugin_workers.driver_loop import DriverLoop, answered, first_error, in_thread, successful_values
from rlcore_plugin_workers.evaluation_runner import EvaluationRunner
from rlcore_plugin_workers.heartbeat import Deadlines, HeartbeatTimeoutError, watch_heartbeat
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_pool import ProducerPool
from rlcore_plugin_workers.schedule_service import BatchOrder
from rlcore_plugin_workers.stats_collector import StatsCollector
from rlcore_plugin_workers.trainer_ranks import TrainerRanks
from rlcore_plugin_workers.workers import Worker, WorkerDiedError

__all__ = ["WorkerRuntime"]

T = TypeVar("T")

_CLOSE_SECONDS = 5.0
_LOOK_SECONDS = 5.0
"""The seconds between two checks of slow events: a change in the list of services, and an overdue producer."""
_LAST_SECONDS = 5.0
_INTERRUPTED_SECONDS = 20.0
"""How long to wait for a batch after Ctrl-C, at most."""


class WorkerRuntime(Runtime):
    """A ``Runtime`` whose workers load data and models in parallel."""

    loop_role = "driver"

    def __init__(
        self, plan: Plan, texts: Texts, plan_bundle: PlanBundle, deployment: Deployment, driver: DriverLoop, closing: ExitStack
    ) -> None:
        """Start the workers, and wait until they are ready. ``closing`` receives the shutdown of the workers."""
        self._plan = plan
        self._texts = texts
        self.tokenizer, self.dropped = texts.tokenizer, texts.dropped
        self.fingerprints = plan_bundle.fingerprints
        schedule = schedule_settings(plan, texts.counts)
        self.horizon, self.prompts = schedule.horizon, schedule.prompts or 0
        self._driver, self._say = driver, driver.say
        self._version = first_version(plan)
        self._order: BatchOrder | None = None
        self._trained: BatchOrder | None = None
        self._pending: Future[BatchOrder | None] | None = None
        self._closed = self._stopped = False
        self._deployment, self._schedule = deployment, deployment.schedule
        self._deadlines = Deadlines.of(plan.config.schedule, plan.config.weights.deadline)
        driver.run(self._start(plan_bundle, closing))

    async def _start(self, plan_bundle: PlanBundle, closing: ExitStack) -> None:
        deployment, driver, config = self._deployment, self._driver, self._plan.config
        driver.watch(self._lifetime())
        driver.watch(self._watch_services())
        for notice in await answered(deployment.prepare()):
            self._say(notice)
        self._ranks = TrainerRanks(deployment, driver, plan_bundle, config.training.num_trainers, self._deadlines)
        self._pool = ProducerPool(
            deployment, driver, plan_bundle, config.inference.num_inferencer, deadlines=self._deadlines, say=self._say
        )
        closing.callback(self._close)
        self._reader = BatchReader(deployment, driver, self._ranks)
        self._pool.on_loss = self._ranks.producer_left
        self._evaluations = EvaluationRunner(make_evaluator(self._plan, self._texts), self._pool, driver)
        self._stats = StatsCollector(driver, deployment, self._pool, self._ranks)
        await self._prepare()

    async def _prepare(self) -> None:
        """Have all workers load, and send the producers the address of the weights."""
        driver = self._driver
        loading = await self._ranks.prepare(self._texts.counts, self._plan.config.run.master_port)
        await driver.values([call for call in loading if call.done()], self._ranks.failed)  # if one failed, load no engine
        engines = self._pool.prepare()
        address = (await driver.values(loading, self._ranks.failed))[0]
        await self._ranks.learn_sharing()
        for note in (await driver.values(engines, self._pool.failed))[0]:  # all have the same engine
            self._say(note)
        await driver.values(self._pool.connect(address), self._pool.failed)

    # --- the loop ----------------------------------------------------------------------------------------------------

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        interrupt.wakes.append(lambda: self._driver.soon(self._interrupt))
        try:
            self._driver.run(self._begin(folder.resolve() if self._plan.config.run.enable_profiling else None))
        except ProbeFailedError as error:  # of a rank, or of a producer
            raise self._other_model(error) from error

    async def _begin(self, profiles: Path | None) -> None:
        for loop in (self._listen_for_notes(), self._end_unwanted(), self._look_for_overdue()):
            self._driver.watch(loop)
        self._ranks.watch()
        self._driver.suspects = self._ranks.workers
        self._pool.run(profiles)
        await self._ranks.start(self._texts.probe_ids(), profiles)
        await self._pool.wait_until_serving(self._version, self._plan.config.weights.deadline)

    def _other_model(self, error: ProbeFailedError) -> RlcoreError:
        """Return the error for a probe that failed before the first step: ConfigError if trainers and producers may have read the folder
        with different libraries."""
        config = self._plan.config
        if config.training.environment is None:
            return error
        there = config.inference.environment or "the driver's environment"
        return ConfigError(
            f"trainers in environment {config.training.environment} and producers in {there} do not read the same model from "
            f"{config.model.model}: {str(error).partition(';')[0]}; compare the versions of transformers in the two and how they read "
            "config.json (rope_parameters or rope_theta, tie_word_embeddings), or leave out --training-environment"
        )

    def next_batch(self) -> bool:
        if self._stopped:
            raise RunError("the producer was stopped while a batch was awaited")
        return self._driver.run(self._next_batch())

    async def _next_batch(self) -> bool:
        while True:
            pending, self._pending = self._pending or self._schedule.call("next_batch"), None
            self._order = await self._answer(pending)
            if self._order is None:
                return False
            if await self._fetch(self._order):
                return True

    def _interrupt(self) -> None:
        """Stop waiting for a batch. If all workers are on one host, wait a short time for groups in progress, which may complete a step."""
        self._schedule.call("interrupt", self._deployment.one_host)
        if self._deployment.one_host:
            asyncio.get_running_loop().call_later(_INTERRUPTED_SECONDS, self._schedule.call, "interrupt")

    async def _answer(self, call: Future[Any]) -> Any:
        """Return the answer of the coordinator."""
        return (await self._driver.values([call], self._schedule_failed))[0]

    async def _fetch(self, order: BatchOrder) -> bool:
        """Have the stores send the groups to the ranks. Return False if some groups are gone and the order is void."""
        absent = await self._reader.fetch(order)
        if not absent:
            return True
        self._say(f"warning: {len(absent)} groups were lost with the store of their node; their prompts are generated again")
        await self._answer(self._schedule.call("groups_lost", absent))
        return False

    def train(self, *, log_rollouts: bool) -> Update:
        assert self._order is not None, "next_batch comes first"
        return self._driver.run(self._train(self._order, log_rollouts))

    async def _train(self, order: BatchOrder, log_rollouts: bool) -> Update:
        if self._plan.config.run.placement == "colocated":
            await successful_values([producer.call("sleep") for producer in self._pool.workers])
        self._while_they_train()
        trained, *others = await self._ranks.train(order, log_rollouts, self._reader.take())
        self._version = order.order.version + 1
        self._order, self._trained = None, order
        self._pending = self._schedule.call("next_batch", self._version)
        self._stats.trained([trained, *others])
        for note in trained.notes:
            self._say(f"warning: {note}")
        return Update(
            version=self._version,
            figures={**trained.figures, **self._stats.figures()},
            rollouts=tuple(with_prompts(trained.rollouts, self._texts.prompts)),
            times=self._stats.times,
        )

    def _while_they_train(self) -> None:
        """Do all work that could wait for a batch: deal new leases, load the next batch, forget the last one, and ask for figures."""
        self._schedule.call("training")
        self._reader.preload(self._schedule.call("upcoming"))
        self._forget()
        self._stats.ask()

    def _forget(self) -> None:
        """Have the stores drop the groups of the last update."""
        if self._trained is not None:
            for name, store in self._deployment.stores().items():
                store.call("forget", self._trained.stores.get(name, ()))

    def evaluate(self, step: int) -> None:
        self._driver.run(self._evaluate(step))

    async def _evaluate(self, step: int) -> None:
        """Start the evaluation. Wait until the producers serve this version: if the next one came first, the evaluation would be of it."""
        await self._evaluations.start(step)
        await self._answer(self._schedule.call("served", step))

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        return self._driver.run(self._evaluations.take(wait=wait))

    # --- state and figures -------------------------------------------------------------------------------------------

    def take_scored(self) -> Sequence[Group]:
        return self._driver.run(self._scored()) if self._deployment.keep_scored else ()

    async def _scored(self) -> list[Group]:
        scored = await successful_values([store.call("take_scored") for store in self._deployment.stores().values()])
        return [group for of_store in scored for group in of_store]

    def take_failures(self) -> list[dict[str, Any]]:
        return self._despite_errors(self._stats.take_failures(), [])

    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        known = self._despite_errors(self._stats.take_reward_faults(), [])
        if last:
            answers = _last(self._despite_errors(self._last_faults(), []), _LAST_SECONDS)
            known += [fault for of_judge in answers for fault in of_judge]
        return known

    async def _last_faults(self) -> list[Future[Any]]:
        return [judge.call("take_faults") for judge in self._deployment.judges()]

    def _despite_errors(self, work: Coroutine[Any, Any, T], otherwise: T) -> T:
        """Run a coroutine without raising an error that is pending in the driver. Return ``otherwise`` if the loop hangs in a library
        call."""
        late = Event()

        async def in_time() -> T:
            if late.is_set():  # too late: leave the values for a later call
                work.close()
                return otherwise
            return await work

        try:
            return self._driver.call(in_time()).result(_LAST_SECONDS)
        except TimeoutError:
            late.set()
            return otherwise

    def remarks(self) -> list[str]:
        restarts: Mapping[str, int] = self._ask("restarts")
        services = [f"the {what} of a node was restarted {times} time{'s' * (times > 1)}" for what, times in restarts.items()]
        return [*self._pool.remarks(), *services]

    def save(self, folder: Path) -> PendingSave:
        return self._driver.run(self._ranks.save(folder))

    def control(self, after: int, settings: Mapping[str, Any]) -> None:
        self._ask("control", after, settings)
        self._driver.run(self._ranks.control(settings))

    def state(self) -> dict[str, Any]:
        return self._driver.run(self._state())

    async def _state(self) -> dict[str, Any]:
        state: dict[str, Any] = await self._answer(self._schedule.call("state", self._version))
        self._stats.failures += await self._answer(self._schedule.call("take_failures"))
        return state

    def status(self) -> Status:
        status: Status = self._ask("status")
        return status

    def watch(self) -> FilterMonitor:
        watch: FilterMonitor = self._ask("watch")
        return watch

    def _ask(self, method: str, *arguments: Any) -> Any:
        """Ask the coordinator."""
        return self._driver.run(self._answer(self._schedule.call(method, *arguments)))

    def start_clock(self) -> None:
        self._driver.run(self._stats.start())

    def timing(self) -> Timing:
        return self._driver.run(self._stats.stop())

    def stop(self) -> None:
        self._stopped = True
        self._driver.run(self._stop())

    async def _stop(self) -> None:
        self._schedule.call("stop")
        self._pool.stop()
        await self._stats.finish()

    # --- background tasks --------------------------------------------------------------------------------------------

    async def _watch_services(self) -> None:
        """Watch the current services. Some start later, so look for new ones from time to time; a look is cheap."""
        watched: dict[Worker, asyncio.Task[None]] = {}
        while True:
            here = list(self._deployment.services())
            for service in [*watched]:
                if service not in here or watched[service].done():
                    watched.pop(service).cancel()
            for service in here:
                if service not in watched:
                    watched[service] = self._driver.watch(self._watch_service(service))
            await asyncio.sleep(_LOOK_SECONDS)

    async def _watch_service(self, service: Worker) -> None:
        """Watch a service from its first answer on, since its process may still be starting. End a service that falls silent; a later look
        finds its replacement."""
        await self._deadlines.while_loading([service.name], [service.call("lives")])
        error = await first_error(watch_heartbeat(service, self._deadlines.silence_seconds))
        if not isinstance(error, HeartbeatTimeoutError):
            raise error
        if service is self._schedule:
            raise WorkerLostError(f"the coordinator was lost ({error})")
        await in_thread(service.kill)
        self._say(f"warning: {service.name} was lost ({error}); it is killed and restarted")

    async def _look_for_overdue(self) -> None:
        """Ask the schedule which producers have prompts and deliver nothing: an engine may answer and still lose its requests."""
        while True:
            with suppress(WorkerDiedError):  # another task reports the coordinator's death
                self._pool.overdue(await answered(self._schedule.call("overdue", self._deadlines.lease_seconds)))
            await asyncio.sleep(min(_LOOK_SECONDS, self._deadlines.lease_seconds / 4))

    async def _listen_for_notes(self) -> None:
        while True:
            try:
                notes = await answered(self._schedule.call("next_notes"))
            except WorkerDiedError:  # another task reports the coordinator's death
                return
            for note in notes:
                self._say(note)

    async def _end_unwanted(self) -> None:
        """End each producer that the publisher names, through the handle with which the driver started it."""
        while True:
            try:
                name = await answered(self._ranks.producer_to_end())
            except Exception:  # rank 0 died; another task reports it
                return
            if name is None:  # rank 0 closes
                return
            self._pool.end(name)

    # --- end of the run ----------------------------------------------------------------------------------------------

    async def _lifetime(self) -> None:
        """Raise the error that ends the coordinator, unless the run is closed."""
        error = await first_error(answered(self._schedule.call("lifetime")))
        if not self._closed:
            raise await self._schedule_failed(0, error)

    async def _schedule_failed(self, number: int, error: BaseException) -> BaseException:
        if not isinstance(error, WorkerDiedError):
            return error
        return WorkerLostError(f"the coordinator died ({error.details or error})")

    def _close(self) -> None:
        """Have producers and ranks close their engines. The launcher kills those that do not finish within a few seconds."""
        self._closed = True
        _last(self._despite_errors(self._ended(), []), _CLOSE_SECONDS)

    async def _ended(self) -> list[Future[Any]]:
        """Return the last calls of all workers. This runs in the loop, so that no producer is being replaced meanwhile."""
        return [*self._pool.stop(), *self._ranks.close()]


def _last(calls: Iterable[Future[Any]], seconds: float) -> list[Any]:
    """Return the last answers of the remaining workers, if they arrive in time. Ignore errors, which other code has reported."""
    done = wait_for(calls, seconds).done
    return [call.result() for call in done if not call.cancelled() and call.exception() is None]
