"""The local runtime: one process, every role in it, over the services that a cluster uses. At staleness 0 it generates and trains in turns;
above, at the same time. A guard watches the engine: one that does not come back ends the run with a sentence.

The order in which it is built is deliberate: what can be refused cheaply comes first, and the reward workers start before torch and
threads.
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import ExitStack, suppress
from functools import partial
from itertools import takewhile
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from rlcore.config import Plan
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
from rlcore.runtime.group_store import GroupStore
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.runtime.mailbox import Mailbox
from rlcore.runtime.parts import make_evaluator, make_jobs, make_judge, make_publisher, make_receiver, make_watch, schedule_settings
from rlcore.runtime.producer_loop import Evaluate, ProducerLoop, Sleep, Stop
from rlcore.runtime.pulse import Pulse
from rlcore.runtime.schedule_service import Arrival, ScheduleService
from rlcore.runtime.service_thread import LocalLinks, ServiceThread
from rlcore.runtime.starvation import FilterWatch
from rlcore.runtime.timing import Timing, profiled
from rlcore.schedule import Status, TimeAccount, Verdict

__all__ = ["LocalCrew"]

T = TypeVar("T")

_INTERRUPTED_SECONDS = 20.0
"""How long, at most, an engine may stay away after Ctrl-C: a run that somebody wants to end does not wait for the deadline."""

_CLOSING_SECONDS = 30.0
"""How long a run that was ended may take to close; after that the process ends itself."""


class LocalCrew(Crew):
    """Every role in a thread of this process: the caller's trains, one generates, one runs the services between them.

    At staleness 0 trainer and producer take turns: nothing is leased from the moment a batch is handed out until the next one is asked for,
    and whoever publishes weights or asks for an evaluation waits for it. Colocated, the producer sleeps while it has no turn.
    """

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
        self._plan = plan
        self._say = say
        self._in_turns = plan.config.schedule.max_staleness == 0
        self._guard = EngineGuard(f"inference backend {plan.config.inference.name}", plan.config.schedule.producer_deadline, say)
        closing.callback(self._guard.stop)  # called last: closing an engine that hangs may hang too
        data = load_data(plan, say)
        self._judge = make_judge(plan)
        closing.callback(self._judge.close)
        for notice in self._judge.notices:
            say(notice)
        for data_set in data.values():
            self._judge.check(data_set.prompts)
        self._texts = read_texts(plan, data)
        self.tokenizer, self.dropped = self._texts.tokenizer, self._texts.dropped
        self.fingerprints = fingerprints(data, self.tokenizer)
        schedule = schedule_settings(plan, len(self._texts.training))
        self.horizon, self.prompts = schedule.horizon, schedule.prompts
        self._accounts = {"producer": TimeAccount(), "trainer": TimeAccount()}
        self._consumer = make_consumer(plan, schedule, self._accounts["trainer"], closing)
        engine = make_engine(plan, self.tokenizer, closing)
        for note in inference_notes(engine, plan.config.inference.name, probe=plan.config.weights.probe):
            say(note)
        self._services = ServiceThread()
        closing.callback(self._services.close)
        scoring = AsyncJudge(self._judge)
        closing.callback(scoring.end)
        self._schedule = ScheduleService(schedule, make_watch(plan))
        self._store = GroupStore("store", self._deliver, keep_scored=True)
        self._mail = Mailbox()
        self._news = Mailbox()
        """Nudges for the caller's thread: something that it may wait for has happened."""
        self._ended: Future[None] = Future()
        self._ended.add_done_callback(self._nudge)
        links = LocalLinks(self._services, self._schedule, self._store, scoring)
        self._thread = self._make_producer(engine, links, closing)
        closing.callback(self.stop)
        self._evaluator, self._next_key, self._evaluated = make_evaluator(plan, self._texts), -1, -1
        self._evaluations: list[Future[tuple[int, list[TaskReport]] | None]] = []
        self._one_evaluation = asyncio.Lock()
        self._tolerance = probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype)
        self._version, self._serving = 0, -1
        self._batch: Batch | None = None
        self._tokens = Tokens()
        self._timing = Timing()

    def _make_producer(self, engine: InferenceBackend, links: LocalLinks, closing: ExitStack) -> threading.Thread:
        """The thread that generates. Mail, links and the two ends of the weight transfer carry all that it makes and is made of."""
        plan, name = self._plan, "producer-0"
        self._publisher, address = make_publisher(plan, closing, on_failure=self._producer_ends)
        account, judge = self._accounts["producer"], JudgeClient(links.score, self._mail)
        loop = ProducerLoop(
            Producer(name, engine, self.tokenizer, judge, account, make_conversation(plan), plan.config.weights.bucket_mb << 20),
            make_jobs(plan, self._texts),
            links,
            make_receiver(plan, closing, name=name, address=address, on_news=self._mail.nudge),
            self._mail,
            int(plan.config.inference.inference_batch_size),
            account,
            in_waves=self._in_turns,
            pulse=self._guard.pulse,
            on_version=self._serves,
        )
        self._ask(self._schedule.join(name))
        return threading.Thread(target=self._produce, args=(loop,), name=f"producer {name}", daemon=True)

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
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


class EngineGuard:
    """A thread that looks at ``pulse``, which whoever calls the engine beats. ``engine``: what a person calls it; ``deadline``: seconds
    that it may stay away."""

    def __init__(self, engine: str, deadline: float, say: Callable[[str], None]) -> None:
        self.pulse = Pulse()
        self._engine = engine
        self._deadline = deadline
        self._say = say
        self._wake = threading.Event()
        self._stopped = False
        self._interrupted: float | None = None

    def start(self, interrupt: Interrupt) -> None:
        """Watch until ``stop``."""
        interrupt.wakes.append(self._hurry)
        threading.Thread(target=self._watch, args=(interrupt,), name="engine guard", daemon=True).start()

    def stop(self) -> None:
        """The run is closed."""
        self._stopped = True
        self._wake.set()

    def _hurry(self) -> None:
        self._interrupted = time.monotonic()
        self._wake.set()

    def _watch(self, interrupt: Interrupt) -> None:
        while (left := self._left()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if self._stopped:
                return
        away = f"{self._engine} has not come back for {self.pulse.age:.3g} s, and was last at {self.pulse.where()}"
        error: BaseException = RunError(f"{away}; if it may need as long as that, raise --producer-deadline")
        if self._interrupted is not None:
            self._say(f"{away}: the run ends without this step")
            error = KeyboardInterrupt()
        self.pulse.given_up = True
        self._wake.clear()
        if not interrupt.end(error):
            self._say(f"warning: {away}; end this process if it stays away")
        elif not self._wake.wait(_CLOSING_SECONDS) and not self._stopped:
            print(f"error: {str(error) or 'interrupted'}; the run could not be closed and is killed", file=sys.stderr, flush=True)
            os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)

    def _left(self) -> float:
        """Seconds until the engine has been away for too long, if it stays away."""
        left = self._deadline - self.pulse.age
        if self._interrupted is None:
            return left
        patience = min(self._deadline, _INTERRUPTED_SECONDS)
        return min(left, patience - min(self.pulse.age, time.monotonic() - self._interrupted))
