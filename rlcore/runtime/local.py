"""The local runtime: every role on this machine. One producer and one trainer take turns in this process; several of them, stale data or an
environment make them processes of their own, which work at the same time. Schedule, store and judge are in this process.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from rlcore.config import Plan
<<<<<<< HEAD
from rlcore.config.this_machine import cuda_devices
from rlcore.config.transfer_choice import in_one_process
from rlcore.contracts.specs import PluginKind, RuntimeSpec
from rlcore.host.threads import threads_of
from rlcore.rewards import Judge
from rlcore.runtime.async_judge import AsyncJudge
from rlcore.runtime.engine_guard import EngineGuard
=======
from rlcore.contracts.crew import Crew, Update
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import InferenceBackend, Saving
from rlcore.contracts.snapshots import probe_tolerance
from rlcore.contracts.types import Group
from rlcore.roles.evaluator import TaskReport
from rlcore.roles.producer import Produced, Producer
from rlcore.runtime.async_judge import AsyncJudge, JudgeClient
from rlcore.runtime.backends import inference_notes, make_consumer, make_conversation, make_engine
from rlcore.runtime.delivery import Tokens
from rlcore.runtime.figures import Batch, batch_figures, probe_sequence, rollout_rows
>>>>>>> origin/openparts2
from rlcore.runtime.group_store import GroupStore
from rlcore.runtime.in_process import InProcessLauncher
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.launcher import ProcessLauncher
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.runtime.parts import make_judge, make_watch, schedule_settings
from rlcore.runtime.schedule_service import ScheduleService
from rlcore.runtime.service_thread import ServiceThread, ServiceWorker
from rlcore.runtime.shipment import PlanAtHand, Shipment
from rlcore.runtime.site import Links, Site
from rlcore.runtime.worker_crew import WorkerCrew
from rlcore.runtime.workers import Seat, Worker

__all__ = ["LocalCrew", "LocalSite"]

_PRODUCER_CALLS = 8
"""Of a producer: one runs its loop, one guards it, the others wait for evaluations, reports and sleep."""


class LocalCrew(WorkerCrew):
    """What can be refused cheaply comes first, and the reward workers start before torch and threads."""

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
        self._guard = EngineGuard(f"inference backend {plan.config.inference.name}", plan.config.schedule.producer_deadline, say)
        closing.callback(self._guard.stop)  # called last: closing an engine that hangs may hang too
        data = load_data(plan, say)
        judge = make_judge(plan)
        closing.callback(judge.close)
        for notice in judge.notices:
            say(notice)
        for data_set in data.values():
            judge.check(data_set.prompts)
        texts = read_texts(plan, data)
        found = fingerprints(data, texts.tokenizer)
        site = LocalSite(plan, judge, len(texts.training), closing)
        if site.one_process:
            self.loop_role = "trainer"
            at_hand = PlanAtHand(plan=plan, texts=texts, fingerprints=found, pulse=self._guard.pulse)
            super().__init__(plan, texts, at_hand, site, closing, say)
        else:
            super().__init__(plan, texts, Shipment.of(plan, found), site, closing, say)

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
<<<<<<< HEAD
        """See Crew."""
        if self._site.one_process:
            self._guard.start(interrupt)
        super().begin(folder, interrupt)
=======
        self._interrupt = interrupt
        self._listen()
        # From Python 3.12 on a process has one profiler, and the trainer's thread is the one to see.
        profiles = self._plan.config.run.enable_profiling and sys.version_info < (3, 12)
        self._profile = folder / "profile-producer.prof" if profiles else None
        self._guard.start(interrupt)
        self._publish(self._texts.probe_ids())
        self._thread.start()

    def next_batch(self) -> bool:
        with self._accounts["trainer"].span("waiting for data"):
            if self._in_turns:
                self._until(lambda: self._serving >= self._version)
            order = self._wait(self._services.call(self._schedule.next_batch()))
            if order is None:
                return False
            if self._plan.config.run.placement == "colocated":
                asleep: Future[None] = Future()
                self._mail.put(Sleep(lambda: asleep.set_result(None)))
                self._wait(asleep)
        if not self._in_turns:
            self._services.call(self._schedule.training())
        lease_ids = order.order.lease_ids
        _, groups = self._ask(self._store.read(lease_ids))
        self._ask(self._store.forget(lease_ids))
        self._batch = Batch(
            groups=tuple(groups[lease_id] for lease_id in lease_ids),
            masked=frozenset(place for place, lease_id in enumerate(lease_ids) if lease_id in order.order.masked),
            version=order.order.version,
            filtering=order.filtering,
        )
        return True

    def train(self, *, log_rollouts: bool) -> Update:
        batch, self._batch = self._batch, None
        assert batch is not None, "next_batch comes first"
        metrics = self._consumer.update(batch.groups, batch.masked, batch.version)
        self._version = batch.version + 1
        self._ask(self._schedule.updated(self._version))
        self._publish(probe_sequence(batch))
        self._timing.collect(self._accounts)
        before, self._tokens = self._tokens, self._ask(self._schedule.tokens())
        tokens = self._tokens.since(before)
        times = self._timing.step(tokens_generated=tokens.generated, tokens_wasted=tokens.wasted)
        return Update(
            version=self._version,
            figures={**batch_figures(batch), **metrics, **self._judge.metrics(), **times},
            rollouts=tuple(rollout_rows(batch)) if log_rollouts else (),
            times=self._timing.step_workers,
        )

    def _publish(self, probe_ids: np.ndarray | None) -> None:
        """Offer the newest weights, with a sequence that they were trained on as the probe."""
        wanted = probe_ids if self._plan.config.weights.probe else None
        self._consumer.publish(self._publisher, self._version, wanted, self._tolerance)

    def evaluate(self, step: int) -> None:
        self._evaluations.append(self._services.call(self._evaluation(step)))
        if self._in_turns:
            self._wait(self._evaluations[-1])

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        for asked in self._evaluations if wait else ():
            self._wait(asked)
        made = list(takewhile(lambda asked: asked.done(), self._evaluations))  # more may be done a moment later
        self._evaluations = self._evaluations[len(made) :]
        return [reports for asked in made if (reports := asked.result()) is not None]

    def take_scored(self) -> Sequence[Group]:
        return self._ask(self._store.take_scored())

    def take_failures(self) -> list[dict[str, Any]]:
        return self._ask(self._schedule.take_failures())

    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        return self._judge.take_faults()

    def remarks(self) -> list[str]:
        return []

    def save(self, folder: Path) -> Saving:
        return self._consumer.save(folder)

    def state(self) -> dict[str, Any]:
        return self._ask(self._schedule.state(self._version))

    def status(self) -> Status:
        return self._ask(self._schedule.status())

    def watch(self) -> FilterWatch:
        return self._ask(self._schedule.watch())

    def start_clock(self) -> None:
        self._timing = Timing.start(self._accounts)

    def timing(self) -> Timing:
        self._timing.stop(self._accounts, self._consumer.timings)
        return self._timing

    def stop(self) -> None:
        self._ask(self._schedule.stop())
        self._mail.put(Stop())
        if self._thread.ident and not self._guard.pulse.given_up:
            self._thread.join()

    # --- the caller's thread waits -----------------------------------------------------------------------------------

    def _ask(self, work: Coroutine[Any, Any, T]) -> T:
        """What a service answers at once."""
        return self._services.call(work).result()

    def _wait(self, asked: Future[T]) -> T:
        """What takes as long as it takes; raises what ends the producer before."""
        asked.add_done_callback(self._nudge)
        self._until(asked.done)
        return asked.result()

    def _until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            self._tell()
            if self._ended.done():
                self._ended.result()
                raise RunError("the producer was stopped while a batch was awaited")
            self._news.wait()
        self._tell()

    def _tell(self) -> None:
        """Say what the filter's watch has to say."""
        while self._notes.done():
            for note in self._notes.result():
                self._say(note)
            self._listen()

    def _listen(self) -> None:
        self._notes = self._services.call(self._schedule.next_notes())
        self._notes.add_done_callback(self._nudge)

    def _nudge(self, done: Future[Any]) -> None:
        self._news.nudge()

    # --- the services' thread ----------------------------------------------------------------------------------------

    async def _deliver(self, store: str, worker: str, arrivals: Sequence[Arrival]) -> list[Verdict]:
        """``ScheduleService.deliver``. Who interrupts a run gets the step that these groups complete; then nothing is waited for."""
        verdicts = await self._schedule.deliver(store, worker, arrivals)
        if self._interrupt.requested:
            await self._schedule.interrupt()
        return verdicts

    async def _evaluation(self, step: int) -> tuple[int, list[TaskReport]] | None:
        """One at a time: by the first version from ``step`` on that the producer has; None if that version was evaluated before."""
        async with self._one_evaluation:
            if step <= self._evaluated:
                return None
            evaluation = self._evaluator.start(self._next_key)
            self._next_key -= len(evaluation.jobs)
            made: asyncio.Future[tuple[int, list[Produced]]] = asyncio.get_running_loop().create_future()
            then = partial(self._services.post, lambda *answer: made.set_result(answer))
            self._mail.put(Evaluate(tuple(evaluation.jobs), step, then))
            self._evaluated, results = await made
            for produced in results:
                evaluation.collect(produced)
            return self._evaluated, evaluation.reports()

    # --- the producer's thread ---------------------------------------------------------------------------------------

    def _produce(self, loop: ProducerLoop) -> None:
        try:
            with profiled(self._profile), loop.pulse.working():
                loop.run()
            self._producer_ends(None)
        except BaseException as error:
            self._producer_ends(error)

    def _producer_ends(self, error: BaseException | None) -> None:
        """It ended, or gets no weights any more; the first of several reasons counts."""
        with suppress(InvalidStateError):
            if error is None:
                self._ended.set_result(None)
            else:
                self._ended.set_exception(error)

    def _serves(self, version: int) -> None:
        self._serving = version
        self._news.nudge()
>>>>>>> origin/openparts2


class LocalSite(Site):
    """Services in a thread of this process; ``prompts``: how many there are to train on."""

    one_host = True
    address = "127.0.0.1"

    def __init__(self, plan: Plan, judge: Judge, prompts: int, closing: ExitStack) -> None:
        self._config = plan.config
        runtime = plan.registry.spec(PluginKind.RUNTIME, plan.config.run.runtime)
        self.one_process = in_one_process(plan.config, runtime if isinstance(runtime, RuntimeSpec) else None)
        self.in_turns = self.one_process and plan.config.schedule.max_staleness == 0
        services = ServiceThread()
        closing.callback(services.close)
        scoring = AsyncJudge(judge)
        closing.callback(scoring.end)
        schedule = ScheduleService(schedule_settings(plan, prompts), make_watch(plan))
        store = GroupStore("store", schedule.deliver, keep_scored=True)
        self.schedule = ServiceWorker(services, schedule, "the coordinator")
        self._store, self._judge = ServiceWorker(services, store, "the store"), ServiceWorker(services, scoring, "the judge")
        self.launcher = InProcessLauncher() if self.one_process else ProcessLauncher()
        closing.callback(self.launcher.close)
        self._threads = threads_of(plan.config.training.num_trainers + plan.config.inference.num_inferencer)
        self._devices = _devices()

    def trainer_seat(self, rank: int) -> Seat:
        training = self._config.training
        return self._seat(training.environment, self._device(training.device, rank, 1))

    def producer_seat(self, number: int) -> Seat:
        inference, shards = self._config.inference, self._config.inference.producer_tensor_parallel_size
        first = number * shards
        if self._config.run.placement != "colocated" and self._config.training.device != "cpu":
            first += self._config.training.num_trainers
        return self._seat(inference.environment, self._device(inference.device, first, shards), calls=_PRODUCER_CALLS)

    def _seat(self, environment: str | None, devices: str | None, calls: int = 1) -> Seat:
        folder = Path(environment) if environment is not None else None
        return Seat(calls=calls, threads=self._threads, devices=devices, environment=folder)

    def _device(self, typed: str, first: int, count: int) -> str | None:
        """The GPUs of a role, in turns if there are too few; None if it computes on cores, or names one by its number."""
        if not self._devices or typed == "cpu" or ":" in typed:
            return None
        return ",".join(self._devices[place % len(self._devices)] for place in range(first, first + count))

    def links(self, seat: Seat) -> Links:
        return Links(schedule=self.schedule, store=self._store, judge=self._judge)

    def stores(self) -> Mapping[str, Worker]:
        return {"store": self._store}

    def judges(self) -> Sequence[Worker]:
        return (self._judge,)


def _devices() -> list[str]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    visible, count = os.environ.get("CUDA_VISIBLE_DEVICES"), cuda_devices() or 0
    return [name.strip() for name in visible.split(",")][:count] if visible is not None else [str(number) for number in range(count)]
