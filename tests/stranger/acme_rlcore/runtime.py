"""Acme's runtime: one process; a separate thread generates, and the trainer waits for it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Group, PendingSave
from rlcore.api.runtime import (
    Batch,
    DeliveryStatus,
    FilterMonitor,
    GroupJob,
    Interrupt,
    Plan,
    ProducedGroup,
    Producer,
    Role,
    Runtime,
    Status,
    TaskReport,
    TimeAccount,
    Timing,
    Update,
    WorkerTime,
    batch_figures,
    fingerprints,
    first_version,
    load_data,
    make_consumer,
    make_conversation,
    make_coordinator,
    make_engine,
    make_evaluator,
    make_filter_monitor,
    make_jobs,
    make_publisher,
    make_receiver,
    open_judge,
    probe_sequence,
    probe_tolerance,
    read_texts,
    rollout_rows,
    schedule_settings,
)


class PoolOptions(BaseModel):
    """Options of the runtime ``acme_pool``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    thread_name: str = Field("acme", description="name of the thread that generates")


class PoolCrew(Runtime):
    """A runtime made of the roles of ``rlcore.api.runtime``: a coordinator, a producer on a pool of one thread, and a consumer."""

    Options = PoolOptions  # for users who name the class by its file, --runtime ./runtime.py:PoolCrew

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None]) -> None:
        options = plan.runtime_options
        assert isinstance(options, PoolOptions)
        self._plan = plan
        data = load_data(plan, say)
        self._judge = open_judge(plan, data, closing, say)
        self._texts = read_texts(plan, data)
        self.tokenizer, self.dropped = self._texts.tokenizer, self._texts.dropped
        self.fingerprints = fingerprints(data, self.tokenizer)
        schedule = schedule_settings(plan, self._texts.counts)
        self.horizon = schedule.horizon
        self._accounts = {"producer": TimeAccount(), "trainer": TimeAccount()}
        self._consumer = make_consumer(plan, schedule, self._accounts["trainer"], closing)
        engine = make_engine(plan, self.tokenizer, closing)
        conversation = make_conversation(plan, self.tokenizer, "acme-0", closing, say)
        self._producer = Producer("acme-0", engine, self.tokenizer, self._judge, self._accounts["producer"], conversation)
        closing.callback(self._producer.close)
        self._coordinator = make_coordinator(plan, self._texts)
        self._jobs = make_jobs(plan, self._texts)
        self._evaluator = make_evaluator(plan, self._texts)
        self._watch = make_filter_monitor(plan)
        self._publisher, address = make_publisher(plan, closing)
        self._receiver = make_receiver(plan, closing, name="acme-0", address=address, on_news=lambda: None)
        self._tolerance = probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype)
        self._pool = closing.enter_context(ThreadPoolExecutor(1, options.thread_name))
        self._batch: Batch | None = None
        self._groups: dict[int, Group] = {}
        self._scored: list[Group] = []
        self._failures: list[dict[str, Any]] = []
        self._reports: list[tuple[int, list[TaskReport]]] = []
        self._evaluation_key = -1
        self._timing = Timing.start(time.monotonic())

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        self._interrupt = interrupt
        self._publish(first_version(self._plan), None)

    def _publish(self, version: int, probe_ids: Any) -> None:
        wanted = probe_ids if self._plan.config.weights.probe else None
        self._consumer.publish(self._publisher, version, wanted, self._tolerance)
        arrived = self._receiver.newer_than(version - 1)
        if arrived is not None:
            self._producer.load(arrived)
            self._receiver.release(version)

    def next_batch(self) -> bool:
        with self._accounts["trainer"].span("waiting for data"):
            while (order := self._coordinator.next_batch()) is None:
                if self._coordinator.finished or self._interrupt.requested:
                    return False
                most = int(self._plan.config.inference.inference_batch_size)
                leases = self._coordinator.lease(self._producer.name, most, serving=self._producer.version)
                self._deliver(self._made([self._jobs.job(lease) for lease in leases]))
                self._watch.check()
        masked = frozenset(place for place, lease_id in enumerate(order.lease_ids) if lease_id in order.masked)
        groups = tuple(self._groups.pop(lease_id) for lease_id in order.lease_ids)
        self._batch = Batch(groups=groups, masked=masked, version=order.version, filtering=self._watch.next_update())
        return True

    def _made(self, jobs: Sequence[GroupJob]) -> list[ProducedGroup]:
        return self._pool.submit(self._make, jobs).result()

    def _make(self, jobs: Sequence[GroupJob]) -> list[ProducedGroup]:
        self._producer.accept(jobs)
        results: list[ProducedGroup] = []
        while not self._producer.idle:
            results += self._producer.step(0.05)
        return sorted(results, key=lambda produced: produced.job.key)

    def _deliver(self, results: Sequence[ProducedGroup]) -> None:
        for produced in results:
            arrival, group = self._jobs.finished(produced)
            (verdict,) = self._coordinator.deliver([arrival.delivery])
            self._watch.saw(arrival.delivery, verdict)
            self._scored.append(group)
            if verdict is DeliveryStatus.FAILED:
                failed = {"prompt_id": group.prompt_id, "episode": group.episode, "reason": arrival.reason}
                self._failures.append({"step": self._coordinator.version + 1, **failed})
            if verdict.kept:
                self._groups[arrival.delivery.lease_id] = group

    def train(self, *, log_rollouts: bool) -> Update:
        batch, self._batch = self._batch, None
        assert batch is not None
        with self._accounts["producer"].span("back-pressure"):
            metrics = self._consumer.update(batch.groups, batch.masked, batch.version)
            version = self._coordinator.updated()
            self._publish(version, probe_sequence(batch))
        self._timing.saw(self._reports_up_to(time.monotonic()))
        times = self._timing.step()
        figures = {**batch_figures(batch), **metrics, **self._judge.metrics(), **times}
        rows: tuple[Mapping[str, Any], ...] = tuple(rollout_rows(batch)) if log_rollouts else ()
        return Update(version=version, figures=figures, rollouts=rows, times=self._timing.step_workers)

    def evaluate(self, step: int) -> None:
        evaluation = self._evaluator.start(self._evaluation_key)
        self._evaluation_key -= len(evaluation.jobs)
        self._reports.append((step, evaluation.reports(self._made(evaluation.jobs))))

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
        return ["generated by Acme"]

    def save(self, folder: Path) -> PendingSave:
        return self._consumer.save(folder)

    def state(self) -> dict[str, Any]:
        return {"coordinator": self._coordinator.state(), "watch": self._watch.state()}

    def status(self) -> Status:
        return self._coordinator.status()

    def watch(self) -> FilterMonitor:
        return self._watch

    def start_clock(self) -> None:
        now = time.monotonic()
        self._reports_up_to(now)
        self._timing = Timing.start(now)

    def timing(self) -> Timing:
        now = time.monotonic()
        self._timing.saw(self._reports_up_to(now))
        self._timing.stop(now, self._consumer.timings)
        return self._timing

    def _reports_up_to(self, moment: float) -> list[WorkerTime]:
        return [account.report(name, Role(name), moment) for name, account in self._accounts.items()]

    def stop(self) -> None:
        pass
