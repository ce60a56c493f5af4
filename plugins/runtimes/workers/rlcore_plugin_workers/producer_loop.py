"""The loop of a producer, which handles commands, weights, leases and work. One thread runs it; other threads send it commands.

It is plain Python: the services that it calls are workers, which may be threads or on other hosts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlcore.api import Lease, Prompt, Rollout, RunError, Score
from rlcore.api.runtime import GroupJob, JobMaker, ProducedGroup, Producer, TimeAccount, Watchdog, error_context, newer_weights
from rlcore.api.weights import GroupBrokenError, Receiver
from rlcore_plugin_workers.deployment import Endpoints
from rlcore_plugin_workers.flight import FlightControl
from rlcore_plugin_workers.workers import DoneCallback, Worker, answer

__all__ = ["CommandQueue", "JudgeClient", "ProducerLoop"]


class CommandQueue:
    """A queue of commands, and nudges without content. Any thread may call ``put`` and ``wake``; one thread calls ``take`` and
    ``wait``."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[Callable[[], object]] = []
        self._woken = False

    def put(self, command: Callable[[], object]) -> None:
        """Add a command, a function that the reader calls after its next ``take``."""
        with self._changed:
            self._pending.append(command)
            self._changed.notify()

    def wake(self) -> None:
        """End the present wait, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(self) -> list[Callable[[], object]]:
        """Return all commands without waiting."""
        with self._changed:
            pending, self._pending = self._pending, []
            return pending

    def wait(self, timeout: float | None = None) -> None:
        """Wait for a command or a wake, at most ``timeout`` seconds; consume the wake."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or bool(self._pending), timeout)
            self._woken = False


class JudgeClient:
    """A producer's replacement for a Judge: ``judge`` is the worker of an ``AsyncJudge``. Only the producer's thread calls ``submit`` and
    ``poll``.

    Any command ends ``poll`` early, because new leases must not wait for verdicts. Tokens are sent only if some reward of the run
    ``reads_tokens``.
    """

    def __init__(self, judge: Worker, commands: CommandQueue, *, reads_tokens: bool) -> None:
        self._judge = judge
        self._reads_tokens = reads_tokens
        self._commands = commands
        self._lock = threading.Lock()
        self._scored: list[tuple[int, tuple[Score, ...]]] = []
        self._error: BaseException | None = None

    def submit(self, key: int, prompt: Prompt, rollouts: Sequence[Rollout], *, counted: bool = True) -> None:
        """Send a group to the judge without waiting."""

        def answered(scores: Any, error: BaseException | None) -> None:
            with self._lock:
                if error is not None:
                    self._error = self._error or error
                else:
                    self._scored.append((key, scores))
            self._commands.wake()

        told = rollouts if self._reads_tokens else [rollout.without_tokens() for rollout in rollouts]
        answer(self._judge.call("score", prompt, told, counted), answered)

    def poll(self, timeout: float) -> list[tuple[int, tuple[Score, ...]]]:
        """Return the scored groups; [] after ``timeout`` seconds, or if a command arrives first."""
        if not (scored := self._taken()) and timeout > 0:
            self._commands.wait(timeout)
            scored = self._taken()
        return scored

    def _taken(self) -> list[tuple[int, tuple[Score, ...]]]:
        with self._lock:
            if self._error is not None:
                raise self._error if isinstance(self._error, Exception) else RunError(str(self._error))
            scored, self._scored = self._scored, []
            return scored


_POLL_SECONDS = 0.05
_EAGER_SECONDS = 0.005
"""The longest poll of the engine. The second value applies if the next leases could start at once, or if groups wait for the answer to the
last delivery."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """A requested evaluation: jobs for weights of ``version`` or newer. One version makes all of them."""

    jobs: tuple[GroupJob, ...]
    version: int
    done: Future[tuple[int, list[ProducedGroup]]] = field(default_factory=Future)


@dataclass(eq=False)
class ProducerLoop:
    """Keeps one producer busy: it keeps as many prompts in flight as ``flight`` and the schedule allow, loads the newest weights, and makes
    evaluations on request.

    With ``alternating`` (staleness 0) it asks for leases only when nothing is in progress. It delivers all their groups together, in the
    order of the leases, so that no result depends on timing. Otherwise it delivers finished groups at once. If a delivery is in progress,
    they wait for its answer and go together.

    ``commands`` holds functions that the loop's thread calls. ``evaluate``, ``sleep`` and ``stop`` may be called from any thread, also
    before ``run``.
    """

    producer: Producer
    jobs: JobMaker
    endpoints: Endpoints
    receiver: Receiver
    commands: CommandQueue
    flight: FlightControl
    account: TimeAccount
    alternating: bool = field(default=False, kw_only=True)
    pulse: Watchdog = field(default_factory=Watchdog, kw_only=True)
    """Beats when a call to engine or judge returns; rests while there is nothing to do."""
    on_version: Callable[[int], None] = field(default=lambda version: None, kw_only=True)
    """Called with each version when the producer serves it, verified."""
    weights_seconds: float = field(default=120.0, kw_only=True)
    """How long an engine whose group broke waits for a complete version, at most."""
    _broke_at: float | None = field(default=None, init=False)
    _held_back: list[Lease] = field(default_factory=list, init=False)
    _asked: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)
    _stopping: bool = field(default=False, init=False)
    _wanted: list[_Evaluation] = field(default_factory=list, init=False)
    _evaluation: _Evaluation | None = field(default=None, init=False)
    _evaluated: list[ProducedGroup] = field(default_factory=list, init=False)
    _made: list[ProducedGroup] = field(default_factory=list, init=False)
    _delivering: bool = field(default=False, init=False)
    """Whether a delivery is in progress. The loop's thread sets it; the thread that brings the answer clears it."""
    _asleep: Future[None] | None = field(default=None, init=False)

    def evaluate(self, jobs: Sequence[GroupJob], version: int) -> Future[tuple[int, list[ProducedGroup]]]:
        """Have these jobs made with weights of this version or newer. The future's value is (the version that made all of them,
        results)."""
        asked = _Evaluation(tuple(jobs), version)
        self.commands.put(partial(self._wanted.append, asked))
        return asked.done

    def sleep(self) -> Future[None]:
        """Have the device freed when no work is in progress. The future is done when it is free."""
        asleep: Future[None] = Future()
        self.commands.put(partial(setattr, self, "_asleep", asleep))
        return asleep

    def stop(self) -> None:
        """Have ``run`` end."""
        self.commands.put(partial(setattr, self, "_stopping", True))

    def run(self) -> None:
        """Work until ``stop``. Raise errors that end this producer (a failed engine) or the run (WeightsError, RewardBudgetError)."""
        while self._take_work():
            timeout = _EAGER_SECONDS if self._asked or self._must_deliver else _POLL_SECONDS
            begun, prompts, requests = time.monotonic(), self.producer.busy, self.producer.requests
            made = self.producer.step(timeout)
            if self._evaluation is None:
                self.flight.saw(time.monotonic() - begun, prompts, requests)
                self.flight.ended(len(made))
            self._collect(made)

    def _take_work(self) -> bool:
        """Run the commands, load newer weights, and start all possible work. Wait if there is nothing to do. Return False at the end."""
        while True:
            self.pulse.beat()
            for act in self.commands.take():
                act()
            if self._must_deliver and (self._stopping or not self._delivering):
                self._deliver()
            if self._stopping:
                return False
            self._start_evaluation()  # of the version that it serves, before a newer one replaces it
            self._load_newer()
            self._start_leased()
            self._start_evaluation()
            self._ask_for_leases()
            if not (self.producer.idle or self.producer.torn):
                return True
            self._fall_asleep()
            with self.account.span(self._waits_for()), self.pulse.resting():
                self.commands.wait(self._remaining_wait())

    def _remaining_wait(self) -> float | None:
        """Return how many seconds the wait for a version may still take after a group broke, None if no group broke. Raise RunError if none
        are left."""
        if self._broke_at is None:
            return None
        left = self._broke_at + self.weights_seconds - time.monotonic()
        if left <= 0:
            raise RunError(
                f"the group in which its engine receives weights broke, and {self.receiver.who} brought no complete version within "
                f"{self.weights_seconds:g} s; its log may say why, or raise --weights-deadline"
            )
        return left

    def _take_leases(self, leases: Sequence[Lease]) -> None:
        self._asked, self._ended = False, not leases
        self._held_back += leases

    def _load_newer(self) -> None:
        if self._evaluation is not None:  # one version must make the whole evaluation
            if self._broke_at is not None:
                self._broke_at = time.monotonic()  # it could not load the version meanwhile, so the time starts again
            return
        snapshot = newer_weights(self.receiver, self.producer.version)
        if snapshot is None:
            return
        try:
            self.producer.load(snapshot)
        except GroupBrokenError:  # the version, or a newer one, comes again with a higher epoch; a torn engine waits for it
            self._broke_at = self._broke_at or time.monotonic()
            with error_context(self.receiver.who, f"hearing that the group of version {snapshot.version} broke"):
                self.receiver.on_group_broken(getattr(snapshot, "epoch", -1))
            return
        self._broke_at = None
        with error_context(self.receiver.who, f"releasing version {snapshot.version}"):
            self.receiver.release(snapshot.version)
        self.endpoints.schedule.call("serving", self.producer.name, snapshot.version)
        self.on_version(snapshot.version)

    def _start_leased(self) -> None:
        if self._held_back and self.producer.serves:
            leases, self._held_back = self._held_back, []
            self.producer.accept([self.jobs.job(lease) for lease in leases])

    def _start_evaluation(self) -> None:
        if self._evaluation is not None or not self._wanted or not self.producer.serves:
            return
        if self.producer.version < self._wanted[0].version:
            return
        self._evaluation = self._wanted.pop(0)
        self.producer.booking = "evaluation"
        self.producer.accept(self._evaluation.jobs)
        self._finish_evaluation()

    def _ask_for_leases(self) -> None:
        free = self.flight.limit - self.producer.busy
        if self._asked or self._ended or free <= 0 or self.producer.version < 0 or not self.producer.serves:
            return
        if self.alternating and not self.producer.idle:
            return
        self._asked = True
        answer(self.endpoints.schedule.call("lease", self.producer.name, free, self.producer.version), self._answered(self._take_leases))

    def _fall_asleep(self) -> None:
        if self._asleep is not None and not self.producer.torn:
            self.producer.sleep()
            asleep, self._asleep = self._asleep, None
            asleep.set_result(None)

    def _waits_for(self) -> str:
        if self.producer.version < 0 or not self.producer.serves:
            return "waiting for weights"
        return "waiting for data" if self._ended else "back-pressure"

    def _answered(self, take: Callable[[Any], None] | None = None) -> DoneCallback:
        """Return a callback that passes the answer of a call to the loop's thread, and raises an error there."""

        def answered(value: Any, error: BaseException | None) -> None:
            if error is not None:
                self.commands.put(partial(_fail, error))
            elif take is not None:
                self.commands.put(partial(take, value))

        return answered

    def _collect(self, results: Sequence[ProducedGroup]) -> None:
        self._made += [produced for produced in results if produced.job.counted]
        self._evaluated += [produced for produced in results if not produced.job.counted]
        self._finish_evaluation()
        if self._must_deliver and not self._delivering:
            self._deliver()

    @property
    def _must_deliver(self) -> bool:
        """Whether there are groups that may be delivered."""
        return bool(self._made) and not (self.alternating and not self.producer.idle)

    def _deliver(self) -> None:
        """Deliver all finished groups."""
        made, self._made = sorted(self._made, key=lambda produced: produced.job.key), []
        arrivals, groups = zip(*map(self.jobs.finished, made), strict=True)
        self._delivering = True
        answer(self.endpoints.store.call("deliver", self.producer.name, arrivals, groups), self._delivered)

    def _delivered(self, kept: Any, error: BaseException | None) -> None:
        """Handle the answer to a delivery, in any thread. Either the loop sees that no delivery is in progress, or this method sees the
        groups that the loop left: each checks after it writes."""
        if error is not None:
            self.commands.put(partial(_fail, error))
            return
        self._delivering = False
        if self._made:
            self.commands.wake()

    def _finish_evaluation(self) -> None:
        evaluation = self._evaluation
        if evaluation is None or len(self._evaluated) < len(evaluation.jobs):
            return
        if len(self._evaluated) > len(evaluation.jobs):
            raise RunError(f"producer {self.producer.name} made more results of an evaluation than were asked for")
        results, self._evaluated = self._evaluated, []
        self._evaluation, self.producer.booking = None, None
        evaluation.done.set_result((self.producer.version, results))


def _fail(error: BaseException) -> None:
    raise error
