"""The runtime of one process: it generates, scores and trains, one after the other. An update has these stages:

    lease      prompts from the schedule                            Coordinator.lease
    generate   their completions                                    ProducerThread.make
    score      them, in the worker processes of the rewards         Judge, which the producer calls
    deliver    the groups, which are kept, filtered, or failed      Coordinator.deliver
    train      on the batch that they complete                      Consumer.update
    publish    the new weights, and load them into the engine       Consumer.publish, ProducerThread.load

The thread of the loop (``training_run.py``) makes all these calls. ``EngineGuard`` watches the thread of the producer, so that a run with a
hanging engine can be ended.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.config import Plan
from rlcore.config.resolve import in_one_process
from rlcore.contracts.errors import RunError, WeightsError
from rlcore.contracts.interfaces import PendingSave
from rlcore.contracts.runtime_interface import Interrupt, Runtime, TaskReport, Update
from rlcore.contracts.snapshots import probe_tolerance
from rlcore.contracts.specs import PluginKind, RuntimeSpec
from rlcore.contracts.types import Group
from rlcore.roles.producer import ProducedGroup
from rlcore.runtime.backends import make_consumer
from rlcore.runtime.batch_report import Batch, batch_figures, probe_sequence, rollout_rows, with_prompts
from rlcore.runtime.factories import (
    first_version,
    make_coordinator,
    make_evaluator,
    make_filter_monitor,
    make_jobs,
    make_publisher,
    open_judge,
    schedule_settings,
)
from rlcore.runtime.filter_monitor import FilterMonitor
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.runtime.producer_thread import ProducerThread
from rlcore.runtime.timing import Timing
from rlcore.runtime.watchdog import EngineGuard
from rlcore.schedule import DeliveryStatus, Role, Status, TimeAccount, TokenCounts, TrainOrder, WaitingFor

__all__ = ["OneProcess", "fits_one_process"]


def fits_one_process(plan: Plan) -> bool:
    """Return whether ``OneProcess`` can do what the plan asks for, if its runtime lets one process alternate
    (``RuntimeSpec.alternating``)."""
    runtime = plan.registry.spec(PluginKind.RUNTIME, plan.config.run.runtime)
    transfer = plan.registry.spec(PluginKind.TRANSFER, plan.config.weights.transport)
    return in_one_process(plan.config, runtime if isinstance(runtime, RuntimeSpec) else None, transfer)


class OneProcess(Runtime):
    """The runtime of one process; see ``Runtime``. At staleness 0, nothing is leased between a complete batch and the next request."""

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; ``closing`` closes it. Cheap refusals come first, and the reward workers start before torch and threads.

        :param say: receives a notice of each slow operation."""
        self._plan, self._say = plan, say
        self._guard = EngineGuard(f"inference backend {plan.config.inference.name}", plan.config.schedule.producer_deadline, say)
        closing.callback(self._guard.stop)  # called last: closing a hanging engine may hang too
        data = load_data(plan, say)
        self._judge = open_judge(plan, data, closing, say)
        self._texts = read_texts(plan, data, say=say)
        self.tokenizer, self.dropped = self._texts.tokenizer, self._texts.dropped
        self.fingerprints = fingerprints(data, self.tokenizer)
        self._make_schedule()
        address = self._make_trainer(closing)
        self._producer = ProducerThread(plan, self.tokenizer, self._judge, address, self._guard.pulse, say)
        closing.callback(self._producer.close)

    def _make_schedule(self) -> None:
        plan, prompts = self._plan, self._texts.counts
        settings = schedule_settings(plan, prompts)
        self.horizon, self.prompts = settings.horizon, settings.prompts or 0
        self._coordinator, self._watch = make_coordinator(plan, self._texts), make_filter_monitor(plan)
        self._jobs, self._evaluator = make_jobs(plan, self._texts), make_evaluator(plan, self._texts)
        self._state = self._state_now()
        self._groups: dict[int, Group] = {}
        """Groups by lease that were kept and are not in a batch yet."""
        self._batch: Batch | None = None
        self._stopped = False
        self._scored: list[Group] = []
        self._failures: list[dict[str, Any]] = []
        self._reports: list[tuple[int, list[TaskReport]]] = []
        self._evaluation_key = -1
        self._tokens = self._counted = TokenCounts()

    def _make_trainer(self, closing: ExitStack) -> Any:
        """Load the trainer. Return the address of its weights."""
        plan = self._plan
        self._account, self._waiting, self._timing = TimeAccount(), ExitStack(), Timing.start(time.monotonic())
        self._consumer = make_consumer(plan, schedule_settings(plan, self._texts.counts), self._account, closing)
        self._publisher, address = make_publisher(plan, closing, on_failure=self._transfer_failed)
        self._notes = list(self._consumer.notes)
        self._publisher.on_drop = self._notes.append
        self._tolerance = probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype)
        return address

    def _transfer_failed(self, error: WeightsError) -> None:
        self._producer.transfer_failed(error)

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._guard.start(interrupt)
        interrupt.wakes.append(self._producer.interrupt)
        # From Python 3.12 a process has only one profiler. The thread of the loop is the one to profile.
        profiles = self._plan.config.run.enable_profiling and sys.version_info < (3, 12)
        self._producer.start(folder.resolve() / f"profile-{self._producer.name}.prof" if profiles else None)
        with self._training():
            self._publish(first_version(self._plan), self._texts.probe_ids())

    # --- one update --------------------------------------------------------------------------------------------------

    def next_batch(self) -> bool:
        if self._stopped:
            raise RunError("the producer was stopped while a batch was awaited")
        order = self._next_order()
        if order is None:
            return False
        masked = frozenset(place for place, lease_id in enumerate(order.lease_ids) if lease_id in order.masked)
        groups = tuple(self._groups.pop(lease_id) for lease_id in order.lease_ids)
        self._batch = Batch(groups=groups, masked=masked, version=order.version, filtering=self._watch.next_update())
        return True

    def _next_order(self) -> TrainOrder | None:
        """Generate until the groups of the next update are complete. Return None at the end of the run and after an interrupt.

        Raises StarvationError if the filter leaves no group to train on."""
        most = int(self._plan.config.inference.inference_batch_size)
        while True:
            self._watch.check()
            if (order := self._coordinator.next_batch()) is not None:
                return order
            if self._interrupt.requested or self._coordinator.waiting_for() is WaitingFor.END:
                return None
            leases = self._coordinator.lease(self._producer.name, most, serving=self._producer.version)
            if not (made := self._producer.make([self._jobs.job(lease) for lease in leases])):
                return None
            self._deliver(made)

    def _deliver(self, made: Sequence[ProducedGroup]) -> None:
        """Report the groups to the schedule, and keep the groups that it keeps."""
        arrivals, groups = zip(*map(self._jobs.finished, made), strict=True)
        verdicts = self._coordinator.deliver([arrival.delivery for arrival in arrivals])
        self._scored += groups
        for arrival, group, verdict in zip(arrivals, groups, verdicts, strict=True):
            self._watch.saw(arrival.delivery, verdict)
            self._tokens = self._tokens.plus(arrival.tokens, wasted=verdict is not DeliveryStatus.KEPT, cut=arrival.cut_tokens)
            if verdict is DeliveryStatus.FAILED:
                of_source = {"source": arrival.delivery.source} if arrival.delivery.source else {}
                failed = {**of_source, "episode": group.episode, "prompt_id": group.prompt_id, "reason": arrival.reason}
                self._failures.append({"step": self._coordinator.version + 1, **failed})
            if verdict.kept:
                self._groups[arrival.delivery.lease_id] = group
        for note in self._watch.take_notes():
            self._say(note)

    def train(self, *, log_rollouts: bool) -> Update:
        batch, self._batch = self._batch, None
        assert batch is not None, "next_batch comes first"
        if self._plan.config.run.placement == "colocated":
            self._producer.sleep()
        with self._training():
            metrics = self._consumer.update(batch.groups, batch.masked, batch.version)
            version = self._coordinator.updated()
            self._state = self._state_now()
            self._publish(version, probe_sequence(batch))
        figures = {
            **batch_figures(batch, self._plan.source_names),
            **metrics,
            **self._judge.take_judged().figures(),
            **self._step_seconds(),
        }
        for note in self._notes:
            self._say(f"warning: {note}")
        self._notes.clear()
        rows = self._rows(batch) if log_rollouts else ()
        return Update(version=version, figures=figures, rollouts=tuple(rows), times=self._timing.step_workers)

    def _publish(self, version: int, probe_ids: np.ndarray | None) -> None:
        """Publish the current weights, and load them into the engine."""
        probed = probe_ids if self._plan.config.weights.probe else None
        self._consumer.publish(self._publisher, version, probed, self._tolerance)
        self._producer.load(version)

    @contextmanager
    def _training(self) -> Iterator[None]:
        """A context in which the trainer works. Outside it, the trainer's time is recorded as waiting for data."""
        self._waiting.close()
        yield
        self._waiting.enter_context(self._account.span("waiting for data"))

    # --- calls of the loop -------------------------------------------------------------------------------------------------------

    def evaluate(self, step: int) -> None:
        evaluation = self._evaluator.start(self._evaluation_key)
        self._evaluation_key -= len(evaluation.jobs)
        if made := self._producer.make(evaluation.jobs, "evaluation"):
            self._reports.append((step, evaluation.reports(made)))

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        reports, self._reports = self._reports, []
        return reports

    def take_scored(self) -> Sequence[Group]:
        scored, self._scored = self._scored, []
        return scored

    def take_failures(self) -> list[dict[str, Any]]:
        failures, self._failures = self._failures, []
        return failures

    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        return self._judge.take_faults()

    def remarks(self) -> list[str]:
        return []

    def save(self, folder: Path) -> PendingSave:
        with self._training():
            return self._consumer.save(folder.resolve())

    def state(self) -> dict[str, Any]:
        return self._state

    def _state_now(self) -> dict[str, Any]:
        return {"coordinator": self._coordinator.state(), "watch": self._watch.state()}

    def control(self, after: int, settings: Mapping[str, Any]) -> None:
        self._coordinator.control(after, settings)
        self._consumer.control(settings)

    def status(self) -> Status:
        return self._coordinator.status()

    def watch(self) -> FilterMonitor:
        return self._watch

    def _rows(self, batch: Batch) -> Iterator[dict[str, Any]]:
        share, seed, names = self._plan.config.log.rollout_share, self._plan.config.run.seed, self._plan.source_names
        rows = rollout_rows(batch, self._consumer.advantages, share=share, seed=seed, sources=names)
        return with_prompts(rows, self._texts.prompts)

    def start_clock(self) -> None:
        now = time.monotonic()
        self._step_seconds(now)
        self._timing = Timing.start(now)

    def timing(self) -> Timing:
        now = time.monotonic()
        self._step_seconds(now)
        self._timing.stop(now, self._consumer.timings)
        return self._timing

    def _step_seconds(self, until: float | None = None) -> dict[str, float]:
        """Return the seconds by role and category since the last call."""
        self._timing.saw([self._producer.report(until), self._account.report("trainer-0", Role.TRAINER, until)])
        new, self._counted = self._tokens.since(self._counted), self._tokens
        return self._timing.step(tokens_generated=new.generated, tokens_wasted=new.wasted)

    def stop(self) -> None:
        self._stopped = True
        self._producer.close()
