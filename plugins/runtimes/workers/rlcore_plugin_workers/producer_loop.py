"""The life of a producer: commands, weights, leases, work. One thread runs it; everybody else leaves commands.

Plain Python: whom it talks to is a worker, which may be a thread or on another host.
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
from rlcore_plugin_workers.workers import DoneCallback, Worker, answer

__all__ = ["CommandQueue", "JudgeClient", "ProducerLoop"]


class CommandQueue:
    """What is to be done, in order, and nudges without content. Any thread may ``put`` and ``wake``; one thread takes and waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._pending: list[Callable[[], object]] = []
        self._woken = False

    def put(self, command: Callable[[], object]) -> None:
        """A command for the next ``take``: what its reader calls."""
        with self._changed:
            self._pending.append(command)
            self._changed.notify()

    def wake(self) -> None:
        """End the present wait, or the next one."""
        with self._changed:
            self._woken = True
            self._changed.notify()

    def take(self) -> list[Callable[[], object]]:
        """All pending that are here; does not wait."""
        with self._changed:
            pending, self._pending = self._pending, []
            return pending

    def wait(self, timeout: float | None = None) -> None:
        """Until there is a command or a wake, or ``timeout`` seconds have passed; the wake is used up."""
        with self._changed:
            self._changed.wait_for(lambda: self._woken or bool(self._pending), timeout)
            self._woken = False


class JudgeClient:
    """What a producer holds in place of a Judge: ``judge`` is the worker of an ``AsyncJudge``. ``submit`` and ``poll`` are for the
    producer's thread.

    ``poll`` ends early when any commands arrives: new leases must not wait for verdicts. Tokens are sent only if some reward of the run
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
        """Send a group off; never waits."""

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
        """The groups that are scored; [] after ``timeout`` seconds, or where other commands came first."""
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
"""How long one poll of the engine may last: the second one where leases are awaited that would start at once, or a group waits for the
answer to the delivery before it."""


@dataclass(frozen=True, slots=True)
class _Evaluation:
    """An evaluation that is asked for: jobs to make with weights of ``version`` or newer, one version from the first to the last."""

    jobs: tuple[GroupJob, ...]
    version: int
    done: Future[tuple[int, list[ProducedGroup]]] = field(default_factory=Future)


@dataclass(eq=False)
class ProducerLoop:
    """Keeps one producer busy: as many prompts in flight as it may have, the newest weights, evaluations when they are asked for.

    ``alternating`` (staleness 0): ask for leases only when nothing is under way, and deliver all that was made of them together, in their
    order, so that nothing that comes of it depends on timing. Otherwise what is made is delivered at once, or, if a delivery is under way,
    together with all else that is made until its answer comes. ``commands`` holds functions, which the loop's thread calls: ``evaluate``,
    ``sleep`` and ``stop`` may be called from any thread, before ``run`` too.
    """

    producer: Producer
    jobs: JobMaker
    endpoints: Endpoints
    receiver: Receiver
    commands: CommandQueue
    in_flight: int
    account: TimeAccount
    alternating: bool = field(default=False, kw_only=True)
    pulse: Watchdog = field(default_factory=Watchdog, kw_only=True)
    """Beats while engine and judge come back from what they are asked; rests while there is nothing to do."""
    on_version: Callable[[int], None] = field(default=lambda version: None, kw_only=True)
    """Told every version that is served from now on, verified."""
    weights_seconds: float = field(default=120.0, kw_only=True)
    """How long an engine whose group broke waits for a whole version, at most."""
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
    """A delivery is under way. Set by the loop's thread, and cleared by whichever brings the answer."""
    _asleep: Future[None] | None = field(default=None, init=False)

    def evaluate(self, jobs: Sequence[GroupJob], version: int) -> Future[tuple[int, list[ProducedGroup]]]:
        """Have these jobs made with weights of this version or newer: (the version that made all of them, results)."""
        asked = _Evaluation(tuple(jobs), version)
        self.commands.put(partial(self._wanted.append, asked))
        return asked.done

    def sleep(self) -> Future[None]:
        """Have the device given back once nothing is under way; done when it is free."""
        asleep: Future[None] = Future()
        self.commands.put(partial(setattr, self, "_asleep", asleep))
        return asleep

    def stop(self) -> None:
        """Have ``run`` end."""
        self.commands.put(partial(setattr, self, "_stopping", True))

    def run(self) -> None:
        """Work until ``stop``. Raises what ends this producer (its engine failed) or the run (WeightsError, RewardBudgetError)."""
        while self._take_work():
            timeout = _EAGER_SECONDS if self._asked or self._must_deliver else _POLL_SECONDS
            self._collect(self.producer.step(timeout))

    def _take_work(self) -> bool:
        """Read the commands, load newer weights, start what can start; wait where there is nothing to do. False at the end."""
        while True:
            self.pulse.beat()
            for act in self.commands.take():
                act()
            if self._must_deliver and (self._stopping or not self._delivering):
                self._deliver()
            if self._stopping:
                return False
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
        """Seconds for which a version may still be waited for after a group broke; RunError if none are left."""
        if self._broke_at is None:
            return None
        left = self._broke_at + self.weights_seconds - time.monotonic()
        if left <= 0:
            raise RunError(
                f"its engine's group of the weights broke, and {self.receiver.who} brought no whole version within "
                f"{self.weights_seconds:g} s; its own log may say why, or raise --weights-deadline"
            )
        return left

    def _take_leases(self, leases: Sequence[Lease]) -> None:
        self._asked, self._ended = False, not leases
        self._held_back += leases

    def _load_newer(self) -> None:
        if self._evaluation is not None:  # made by one version from its first token to its last
            if self._broke_at is not None:
                self._broke_at = time.monotonic()  # it could not take the version meanwhile: its time begins anew
            return
        snapshot = newer_weights(self.receiver, self.producer.version)
        if snapshot is None:
            return
        try:
            self.producer.load(snapshot)
        except GroupBrokenError:  # the version, or a newer one, comes again under a higher epoch; an engine that is torn waits for it
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
        free = self.in_flight - self.producer.busy
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
        """What has an answer taken by the loop's thread, and an error raised there."""

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
        """Whether there is something that may be delivered."""
        return bool(self._made) and not (self.alternating and not self.producer.idle)

    def _deliver(self) -> None:
        """All that is made."""
        made, self._made = sorted(self._made, key=lambda produced: produced.job.key), []
        arrivals, groups = zip(*map(self.jobs.finished, made), strict=True)
        self._delivering = True
        answer(self.endpoints.store.call("deliver", self.producer.name, arrivals, groups), self._delivered)

    def _delivered(self, kept: Any, error: BaseException | None) -> None:
        """In any thread. Either the loop sees that no delivery is under way, or this sees what the loop has left: both look last."""
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
