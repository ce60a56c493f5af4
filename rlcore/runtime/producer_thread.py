"""A producer in a thread of the driver's process. The driver waits for the thread, and can abandon it if its engine hangs."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import ExitStack
from math import inf
from pathlib import Path
from queue import SimpleQueue
from threading import Event, Thread
from typing import Any, TypeVar

from rlcore.config import Plan
from rlcore.contracts.errors import GroupBrokenError, RunError, WeightsError
from rlcore.contracts.interfaces import Tokenizer
from rlcore.contracts.snapshots import Snapshot
from rlcore.registry.error_context import error_context
from rlcore.rewards.judge import Judge
from rlcore.roles.producer import GroupJob, ProducedGroup, Producer
from rlcore.runtime.backends import inference_notes, make_conversation, make_engine
from rlcore.runtime.factories import make_receiver, newer_weights
from rlcore.runtime.interrupt import result_of
from rlcore.runtime.timing import profiled
from rlcore.runtime.watchdog import Watchdog
from rlcore.schedule import Role, TimeAccount, WorkerTime

__all__ = ["ProducerThread"]

T = TypeVar("T")

_POLL_SECONDS = 0.05
"""The longest time of one step of the producer, in seconds. After each step the thread checks whether it must end."""
_INTERRUPTED_SECONDS = 15.0
"""How long ``make`` waits for environments after Ctrl-C. Their deadline may be hours."""


class ProducerThread:
    """The thread of a producer, which does one thing at a time. ``make``, ``load`` and ``sleep`` wait for it. ``pulse`` beats while the
    engine works."""

    name = "producer-0"

    def __init__(self, plan: Plan, tokenizer: Tokenizer, judge: Judge, address: Any, pulse: Watchdog, say: Callable[[str], None]) -> None:
        """Load the engine. If this raises, everything that was made is freed.

        :param address: the address of the publisher of the weights."""
        config = plan.config
        self._pulse, self._seconds, self._account = pulse, config.weights.deadline, TimeAccount()
        self._calls: SimpleQueue[tuple[Callable[[], Any], str, Future[Any]] | None] = SimpleQueue()
        self._thread: Thread | None = None
        self._waits_for, self._stopping = "waiting for weights", False
        self._interrupted = inf
        self._news, self._failed = Event(), list[WeightsError]()
        with ExitStack() as parts:
            engine = make_engine(plan, tokenizer, parts)
            for note in inference_notes(engine, config.inference.name, probe=config.weights.probe):
                say(note)
            self._receiver = make_receiver(plan, parts, name=self.name, address=address, on_news=self._news.set, engine=engine)
            bucket_bytes = config.weights.bucket_mb << 20
            conversation = make_conversation(plan, tokenizer, self.name, parts, say)
            self._producer = Producer(self.name, engine, tokenizer, judge, self._account, conversation, bucket_bytes)
            parts.callback(self._producer.close)
            self._parts = parts.pop_all()

    def start(self, profile: Path | None) -> None:
        """Start the thread. ``profile`` is the file for its profile, None for no profile."""
        self._thread = Thread(target=self._run, args=(profile,), name=self.name, daemon=True)
        self._thread.start()

    @property
    def version(self) -> int:
        """The version of the weights that its engine serves."""
        return self._producer.version

    def make(self, jobs: Sequence[GroupJob], booking: str | None = None) -> list[ProducedGroup]:
        """Generate and score; return one result for each job, in the order of their keys. ``booking``: see ``Producer``.

        After ``interrupt``, it returns [] if environments take long."""

        def work() -> list[ProducedGroup]:
            self._producer.booking = booking
            self._producer.accept(jobs)
            made: list[ProducedGroup] = []
            while not self._producer.idle and not self._stopping:
                self._pulse.beat()
                made += self._producer.step(_POLL_SECONDS)
                if self._producer.waits and time.monotonic() > self._interrupted + _INTERRUPTED_SECONDS:
                    return []
            if self._stopping:
                raise RunError(f"{self.name} was stopped while it generated")
            self._producer.booking = None
            return sorted(made, key=lambda produced: produced.job.key)

        return self._call(work)

    def interrupt(self) -> None:
        """Note that the user asked the run to end. Any thread may call it."""
        self._interrupted = time.monotonic()

    def sleep(self) -> None:
        """Give the device back until the next ``load``."""
        self._call(self._producer.sleep, then="waiting for weights")

    def load(self, version: int) -> None:
        """Wait until the transfer has this version, then serve it. Raises WeightsError if that takes longer than ``weights.deadline``."""
        self._call(lambda: self._load(version, time.monotonic() + self._seconds), then="back-pressure")

    def transfer_failed(self, error: WeightsError) -> None:
        """Make ``load`` raise this error. Any thread may call it."""
        self._failed.append(error)
        self._news.set()

    def report(self, until: float | None = None) -> WorkerTime:
        """Report how its time was spent since the last report; see ``TimeAccount.report``."""
        return self._account.report(self.name, Role.PRODUCER, until)

    def close(self) -> None:
        """End the thread, unless its engine hangs, and free everything."""
        self._stopping = True
        self._news.set()
        self._calls.put(None)
        if self._thread is not None and not self._pulse.given_up:
            self._thread.join()
        self._parts.close()

    # --- in the thread -----------------------------------------------------------------------------------------------

    def _load(self, version: int, deadline: float) -> None:
        while self._producer.version < version and not self._stopping:
            self._news.clear()
            if self._failed:
                raise self._failed[0]
            if (snapshot := newer_weights(self._receiver, self._producer.version)) is not None:
                self._take(snapshot)
                continue
            with self._pulse.resting():
                arrived = self._news.wait(max(0.0, deadline - time.monotonic()))
            if not arrived:
                raise WeightsError(
                    f"{self._receiver.who} did not deliver a complete version {version} to {self.name} within {self._seconds:g} s; its own "
                    "log may say why, or raise --weights-deadline"
                )

    def _take(self, snapshot: Snapshot) -> None:
        try:
            self._producer.load(snapshot)
        except GroupBrokenError:  # the version comes again, under a higher epoch
            with error_context(self._receiver.who, f"handling the broken group of version {snapshot.version}"):
                self._receiver.on_group_broken(getattr(snapshot, "epoch", -1))
            return
        with error_context(self._receiver.who, f"releasing version {snapshot.version}"):
            self._receiver.release(snapshot.version)

    def _call(self, work: Callable[[], T], then: str = "") -> T:
        """Return or raise the result of ``work()`` in the thread.

        :param then: the activity of the thread between later calls; "" leaves it unchanged."""
        if self._stopping:
            raise RunError(f"{self.name} was stopped and accepts no more work")
        call: Future[T] = Future()
        self._calls.put((work, then, call))
        return result_of(call)

    def _run(self, profile: Path | None) -> None:
        with self._parts, profiled(profile):
            while (asked := self._next()) is not None:
                work, then, call = asked
                with self._pulse.working():
                    try:
                        result = work()
                    except BaseException as error:  # the caller must receive every kind of exception
                        call.set_exception(error)
                        continue
                self._waits_for = then or self._waits_for
                call.set_result(result)

    def _next(self) -> tuple[Callable[[], Any], str, Future[Any]] | None:
        with self._account.span(self._waits_for):
            return self._calls.get()
