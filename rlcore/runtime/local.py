"""The local runtime: one process, every role in it. At staleness 0 it generates and trains in turns; above, at the same time. A guard
watches the engine: one that does not come back ends the run with a sentence.

The order in which it is built is deliberate: what can be refused cheaply comes first, and the reward workers start before torch and
threads.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from rlcore.config import Plan
from rlcore.contracts.crew import Crew, Update
from rlcore.contracts.errors import RunError
from rlcore.contracts.snapshots import probe_tolerance
from rlcore.contracts.types import Group
from rlcore.roles.evaluator import TaskReport
from rlcore.roles.producer import Producer
from rlcore.runtime.backends import inference_notes, make_consumer, make_conversation, make_engine
from rlcore.runtime.feed import Batch, Feed, SequentialFeed
from rlcore.runtime.figures import batch_figures, probe_sequence, rollout_rows
from rlcore.runtime.interrupt import Interrupt
from rlcore.runtime.loading import fingerprints, load_data, read_texts
from rlcore.runtime.parts import make_evaluator, make_jobs, make_judge, make_publisher, make_receiver, make_watch, schedule_settings
from rlcore.runtime.pulse import Pulse
from rlcore.runtime.starvation import FilterWatch
from rlcore.runtime.threaded_feed import ThreadedFeed
from rlcore.runtime.timing import Timing
from rlcore.schedule import Coordinator, Status, TimeAccount

__all__ = ["LocalCrew"]

_INTERRUPTED_SECONDS = 20.0
"""How long, at most, an engine may stay away after Ctrl-C: a run that somebody wants to end does not wait for the deadline."""

_CLOSING_SECONDS = 30.0
"""How long a run that was ended may take to close; after that the process ends itself."""


class LocalCrew(Crew):
    """Every role as an object of this process."""

    def __init__(self, plan: Plan, closing: ExitStack, say: Callable[[str], None] = lambda line: None) -> None:
        """Build everything; what must be closed is pushed on ``closing`` as soon as it exists. ``say`` receives what takes long."""
        self._plan = plan
        self._say = say
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
        conversation = make_conversation(plan)
        self._producer = Producer("producer-0", engine, self.tokenizer, self._judge, self._accounts["producer"], conversation)
        self._coordinator = Coordinator(schedule)
        self._feed = self._make_feed(closing)
        self._feed.pulse = self._guard.pulse
        self._tolerance = probe_tolerance(plan.config.inference.dtype, plan.config.training.dtype)
        self._batch: Batch | None = None
        self._timing = Timing()

    def _make_feed(self, closing: ExitStack) -> Feed:
        plan = self._plan
        publisher, address = make_publisher(plan, closing)
        receiver = make_receiver(plan, closing, name=self._producer.name, address=address, on_news=lambda: None)
        feed = (SequentialFeed if plan.config.schedule.max_staleness == 0 else ThreadedFeed)(
            self._coordinator,
            self._producer,
            make_jobs(plan, self._texts),
            make_evaluator(plan, self._texts),
            publisher,
            receiver,
            int(plan.config.inference.inference_batch_size),
            make_watch(plan),
            self._say,
        )
        if isinstance(feed, SequentialFeed):
            feed.colocated = plan.config.run.placement == "colocated"
        closing.callback(feed.stop)
        return feed

    def begin(self, folder: Path, interrupt: Interrupt) -> None:
        self._feed.interrupted = lambda: interrupt.requested
        if self._plan.config.run.enable_profiling and sys.version_info < (3, 12):
            # From Python 3.12 on a process has one profiler, and the trainer's thread is the one to see.
            self._feed.profile = folder / "profile-producer.prof"
        self._guard.start(interrupt)
        self._publish(0, self._texts.probe_ids())

    def next_batch(self) -> bool:
        with self._accounts["trainer"].span("waiting for data"):
            self._batch = self._feed.next_batch()
        return self._batch is not None

    def train(self, *, log_rollouts: bool) -> Update:
        batch, self._batch = self._batch, None
        assert batch is not None, "next_batch comes first"
        held_back = self._plan.config.schedule.max_staleness == 0  # nothing may be generated while an update is made
        with self._accounts["producer"].span("back-pressure") if held_back else nullcontext():
            metrics = self._consumer.update(batch.groups, batch.masked, batch.version)
            version = self._feed.updated()
            self._publish(version, probe_sequence(batch))
        self._timing.collect(self._accounts)
        tokens = self._feed.take_tokens()
        times = self._timing.step(tokens_generated=tokens.generated, tokens_wasted=tokens.wasted)
        return Update(
            version=version,
            figures={**batch_figures(batch), **metrics, **self._judge.metrics(), **times},
            rollouts=tuple(rollout_rows(batch)) if log_rollouts else (),
            times=self._timing.step_workers,
        )

    def _publish(self, version: int, probe_ids: np.ndarray | None) -> None:
        """Seal and offer new weights, with a sequence that they were trained on as the probe."""
        wanted = probe_ids if self._plan.config.weights.probe else None
        self._feed.publish(self._consumer.snapshot(version, wanted, self._tolerance))

    def evaluate(self, step: int) -> None:
        self._feed.evaluate(step)

    def take_evaluations(self, *, wait: bool = False) -> list[tuple[int, list[TaskReport]]]:
        return self._feed.take_evaluations(wait=wait)

    def take_scored(self) -> Sequence[Group]:
        return self._feed.take_scored()

    def take_failures(self) -> list[dict[str, Any]]:
        return self._feed.take_failures()

    def take_reward_faults(self, *, last: bool = False) -> list[dict[str, Any]]:
        return self._judge.take_faults()

    def remarks(self) -> list[str]:
        return []

    def save(self, folder: Path) -> None:
        self._consumer.save(folder)

    def state(self) -> dict[str, Any]:
        return self._feed.state()

    def status(self) -> Status:
        return self._coordinator.status()

    def watch(self) -> FilterWatch:
        return self._feed.watch

    def start_clock(self) -> None:
        self._timing = Timing.start(self._accounts)

    def timing(self) -> Timing:
        self._timing.stop(self._accounts, self._consumer.timings)
        return self._timing

    def stop(self) -> None:
        self._feed.stop()


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
