"""The life of a producer: mail, weights, leases, work. One thread runs it; everybody else leaves letters.

Plain Python: whom it talks to is behind ``Links``, so that the other side may be a thread or another host.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rlcore.contracts.errors import GroupBrokenError, RunError
from rlcore.contracts.transport import Receiver
from rlcore.contracts.types import Group, Lease
from rlcore.host.blame import blaming
from rlcore.roles.producer import GroupJob, Produced, Producer
from rlcore.runtime.delivery import JobMaker, delivery_of, failure_of, group_of
from rlcore.runtime.mailbox import Mailbox
from rlcore.runtime.parts import newer_weights
from rlcore.runtime.pulse import Pulse
from rlcore.runtime.schedule_service import Arrival
from rlcore.runtime.site import Links
from rlcore.runtime.workers import Then
from rlcore.schedule import Delivery, TimeAccount

__all__ = ["Evaluate", "ProducerLoop", "Sleep", "Stop"]

_POLL_SECONDS = 0.05
_EAGER_SECONDS = 0.005
"""How long one poll of the engine may last: the second one where leases are awaited that would start at once."""


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Make these jobs with weights of ``version`` or newer, one version from the first to the last; ``then(version, results)``."""

    jobs: tuple[GroupJob, ...]
    version: int
    then: Callable[[int, list[Produced]], None]


@dataclass(frozen=True, slots=True)
class Sleep:
    """Give the device back once nothing is under way; then ``then()``."""

    then: Callable[[], None]


@dataclass(frozen=True, slots=True)
class Stop:
    """End."""


@dataclass(frozen=True, slots=True)
class _Leased:
    leases: tuple[Lease, ...]


@dataclass(frozen=True, slots=True)
class _Failed:
    error: BaseException


@dataclass(eq=False)
class ProducerLoop:
    """Keeps one producer busy: as many prompts in flight as it may have, the newest weights, evaluations when they are asked for.

    ``in_waves`` (staleness 0): ask for leases only when nothing is under way, and deliver all that was made of them together, in their
    order, so that nothing that comes of it depends on timing.
    """

    producer: Producer
    jobs: JobMaker
    links: Links
    receiver: Receiver
    mail: Mailbox
    in_flight: int
    account: TimeAccount
    in_waves: bool = field(default=False, kw_only=True)
    pulse: Pulse = field(default_factory=Pulse, kw_only=True)
    """Beats while engine and judge come back from what they are asked; rests while there is nothing to do."""
    on_version: Callable[[int], None] = field(default=lambda version: None, kw_only=True)
    """Told every version that is served from now on, verified."""
    _held_back: list[Lease] = field(default_factory=list, init=False)
    _asked: bool = field(default=False, init=False)
    _ended: bool = field(default=False, init=False)
    _stopping: bool = field(default=False, init=False)
    _wanted: list[Evaluate] = field(default_factory=list, init=False)
    _evaluation: Evaluate | None = field(default=None, init=False)
    _evaluated: list[Produced] = field(default_factory=list, init=False)
    _made: list[Produced] = field(default_factory=list, init=False)
    _sleep: Sleep | None = field(default=None, init=False)

    def run(self) -> None:
        """Work until ``Stop``. Raises what ends this producer (its engine failed) or the run (WeightsError, RewardBudgetError)."""
        while self._take_work():
            patience = _EAGER_SECONDS if self._asked else _POLL_SECONDS
            self._collect(self.producer.step(patience))

    def _take_work(self) -> bool:
        """Read the mail, load newer weights, start what can start; wait where there is nothing to do. False at the end."""
        while True:
            self.pulse.beat()
            self._read_mail()
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
                self.mail.wait()

    def _read_mail(self) -> None:
        for letter in self.mail.take():
            if isinstance(letter, _Leased):
                self._asked, self._ended = False, not letter.leases
                self._held_back += letter.leases
            elif isinstance(letter, Evaluate):
                self._wanted.append(letter)
            elif isinstance(letter, Sleep):
                self._sleep = letter
            elif isinstance(letter, Stop):
                self._stopping = True
            elif isinstance(letter, _Failed):
                raise letter.error

    def _load_newer(self) -> None:
        if self._evaluation is not None:
            return  # made by one version from its first token to its last
        snapshot = newer_weights(self.receiver, self.producer.version)
        if snapshot is None:
            return
        try:
            self.producer.load(snapshot)
        except GroupBrokenError:
            return  # the version, or a newer one, comes again under a higher epoch; an engine that is torn waits for it
        with blaming(self.receiver.who, f"releasing version {snapshot.version}"):
            self.receiver.release(snapshot.version)
        self.links.serving(self.producer.name, snapshot.version)
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
        if self.in_waves and not self.producer.idle:
            return
        self._asked = True
        self.links.lease(self.producer.name, free, self.producer.version, self._post(lambda leases: _Leased(tuple(leases))))

    def _fall_asleep(self) -> None:
        if self._sleep is not None and not self.producer.torn:
            self.producer.sleep()
            asleep, self._sleep = self._sleep, None
            asleep.then()

    def _waits_for(self) -> str:
        if self.producer.version < 0 or not self.producer.serves:
            return "waiting for weights"
        return "waiting for data" if self._ended else "back-pressure"

    def _post(self, letter: Callable[[Any], Any]) -> Then:
        """What makes a letter of an answer."""

        def answered(value: Any, error: BaseException | None) -> None:
            self.mail.put(letter(value) if error is None else _Failed(error))

        return answered

    def _collect(self, results: Sequence[Produced]) -> None:
        self._made += [produced for produced in results if produced.job.counted]
        self._evaluated += [produced for produced in results if not produced.job.counted]
        self._finish_evaluation()
        if not self._made or (self.in_waves and not self.producer.idle):
            return
        made, self._made = sorted(self._made, key=lambda produced: produced.job.key), []
        groups = [group_of(produced, self.jobs.lease(produced.job.key)) for produced in made]
        arrivals = [self._arrival(produced.job.key, group) for produced, group in zip(made, groups, strict=True)]
        self.links.deliver(self.producer.name, arrivals, groups, self._delivered)

    def _delivered(self, kept: Any, error: BaseException | None) -> None:
        if error is not None:
            self.mail.put(_Failed(error))

    def _arrival(self, lease_id: int, group: Group) -> Arrival:
        delivery = delivery_of(lease_id, group, self.jobs.lease(lease_id), self.jobs.filter_by)
        self.jobs.close(lease_id)
        return Arrival(
            delivery=delivery,
            prompt_id=group.prompt_id,
            tokens=sum(rollout.length for rollout in group.rollouts),
            reason=self._reason(group, delivery),
        )

    def _reason(self, group: Group, delivery: Delivery) -> str:
        """Why its prompt fails, should it: it cannot where it was judged and has an accuracy."""
        if not delivery.failed and delivery.accuracy is not None:
            return ""
        return str(failure_of(group, "" if delivery.failed else self.jobs.filter_by)["reason"])

    def _finish_evaluation(self) -> None:
        evaluation = self._evaluation
        if evaluation is None or len(self._evaluated) < len(evaluation.jobs):
            return
        if len(self._evaluated) > len(evaluation.jobs):
            raise RunError(f"producer {self.producer.name} made more results of an evaluation than were asked for")
        results, self._evaluated = self._evaluated, []
        self._evaluation, self.producer.booking = None, None
        evaluation.then(self.producer.version, results)
