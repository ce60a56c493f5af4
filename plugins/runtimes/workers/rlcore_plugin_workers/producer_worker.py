"""A producer as a worker: it reads data and tokenizer itself, makes its engine, and runs its loop in one of the worker's threads."""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future
from concurrent.futures import wait as wait_for
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from rlcore.api import RunError
from rlcore.api.runtime import (
    GroupJob,
    ProducedGroup,
    Producer,
    Role,
    TimeAccount,
    WorkerTime,
    inference_notes,
    make_conversation,
    make_engine,
    make_jobs,
    make_receiver,
    peak_memory,
    profiled,
)
from rlcore_plugin_workers.deployment import Endpoints
from rlcore_plugin_workers.flight import flight_control
from rlcore_plugin_workers.plan_bundle import PlanBundle
from rlcore_plugin_workers.producer_loop import CommandQueue, JudgeClient, ProducerLoop
from rlcore_plugin_workers.workers import WorkerDiedError

__all__ = ["ProducerWorker"]

_T = TypeVar("_T")


class ProducerWorker:
    """A producer's process. Call ``prepare`` and ``connect`` once, then ``run``, which returns after ``stop``. The other calls come from
    other threads while it runs."""

    def __init__(self, plan_bundle: PlanBundle, name: str, number: int = 0) -> None:
        self._plan_bundle = plan_bundle
        self._name, self._number = name, number
        self._commands = CommandQueue()
        self._account = TimeAccount()
        self._closing = ExitStack()
        self._serves: Future[int] = Future()
        self._over: Future[None] = Future()
        self._stop: Callable[[], None] = lambda: None

    def lives(self) -> int:
        """Return the id of the process. The answer shows that it is running."""
        return os.getpid()

    def prepare(self) -> list[str]:
        """Read data and model. Return the engine's notices for the user. Raise the UsageErrors that a run in one process would raise."""
        self._plan = plan = self._plan_bundle.open(f"producer {self._name}")
        self._texts = self._plan_bundle.read(plan, self._name)
        self._engine = make_engine(plan, self._texts.tokenizer, self._closing, self._number)
        return inference_notes(self._engine, plan.config.inference.name, probe=plan.config.weights.probe)

    def connect(self, endpoints: Endpoints, address: Any) -> None:
        """Connect to the schedule, to the services of the node, and to the publisher of the weights."""
        plan, texts = self._plan, self._texts
        self._receiver = make_receiver(
            plan, self._closing, name=self._name, address=address, on_news=self._commands.wake, engine=self._engine
        )
        judge = JudgeClient(endpoints.judge, self._commands, reads_tokens=any(spec.reads_tokens for spec in plan.reward_specs()))
        conversation = make_conversation(plan, texts.tokenizer, self._name, self._closing, print)
        bucket_bytes = plan.config.weights.bucket_mb << 20
        producer = Producer(self._name, self._engine, texts.tokenizer, judge, self._account, conversation, bucket_bytes)
        self._closing.callback(producer.close)
        self._loop = ProducerLoop(
            producer,
            make_jobs(plan, texts),
            endpoints,
            self._receiver,
            self._commands,
            flight_control(plan.config, [part.plan.config.sampling for part in plan.parts]),
            self._account,
            alternating=plan.config.schedule.alternating,
            pulse=self._plan_bundle.pulse,
            weights_seconds=plan.config.weights.deadline,
        )
        self._loop.on_version, self._stop = self._on_version, self._loop.stop

    def run(self, profile: Path | None = None) -> None:
        """Produce until ``stop``. Return then, or raise the error that ended it."""
        try:
            with self._closing, profiled(profile), self._loop.pulse.working():
                self._loop.run()
        finally:
            self._over.set_result(None)
            self._serves.cancel()

    def guard(self, seconds: float) -> None:
        """Wait until ``run`` ends. Raise RunError if its thread has been in one call for ``seconds``: the engine hangs."""
        pulse = self._loop.pulse
        try:
            while pulse.age < seconds:
                # A library that hangs may block all Python threads, this one included. Then faulthandler ends the process.
                faulthandler.dump_traceback_later(2 * seconds, exit=True, file=2)
                with suppress(TimeoutError):
                    return self._over.result(timeout=seconds - pulse.age)
        finally:
            faulthandler.cancel_dump_traceback_later()
        raise RunError(
            f"its engine {type(self._engine).__name__} has not come back for {seconds:g} s, and was last at {pulse.where()}; if it may "
            "need that long, raise --producer-deadline"
        )

    def serves(self) -> int:
        """Wait until the engine serves verified weights; return their version."""
        return self._serves.result()

    def evaluate(self, jobs: Sequence[GroupJob], version: int) -> tuple[int, list[ProducedGroup]]:
        """Make these jobs with weights of this version or newer, and wait. Return (the version that made them, results)."""
        return self._wait(self._loop.evaluate(jobs, version))

    def sleep(self) -> None:
        """Free the device until the next weights arrive; wait until it is free."""
        self._wait(self._loop.sleep())

    def _wait(self, done: Future[_T]) -> _T:
        """Wait for a result of the loop. If the loop has ended, raise WorkerDiedError, as for a worker that died."""
        either: list[Future[Any]] = [done, self._over]
        wait_for(either, return_when=FIRST_COMPLETED)
        if not done.done():
            raise WorkerDiedError(self._name, f"{self._name} has ended")
        return done.result()

    def report(self, until: float | None = None) -> WorkerTime:
        """Return how the time since the last report was used, as ``TimeAccount.report`` does."""
        time = self._account.report(self._name, Role.PRODUCER, until)
        return replace(time, peak_memory_bytes=peak_memory())

    def stop(self) -> None:
        """End ``run``, and wait until its engine is closed."""
        self._stop()
        self._over.result()

    def _on_version(self, version: int) -> None:
        if not self._serves.done():
            self._serves.set_result(version)
