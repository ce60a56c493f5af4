"""What the seconds of a run were for: activities sorted into the few kinds that a person asks about, as shares that add up to 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from rlcore.schedule.accounting import IDLE, Role, WorkerTime, seconds_by_role
from rlcore.schedule.deliveries import Admission

__all__ = ["Category", "TimeShares", "by_category", "step_figures", "waiting_activity", "worker_seconds"]


class Category(StrEnum):
    """What a second of a worker was for; each belongs to exactly one."""

    COMPUTE = "compute"
    """Training, generating what is trained on, evaluating."""
    WAITING_FOR_DATA = "waiting_for_data"
    """A trainer without a batch; a producer that nothing is left to lease for."""
    WAITING_FOR_WEIGHTS = "waiting_for_weights"
    """Handing out, awaiting or loading weights: whatever weights cost."""
    BLOCKED_BY_REWARDS = "blocked_by_rewards"
    """A producer with nothing to do but to wait for verdicts."""
    BACK_PRESSURE = "back_pressure"
    """A producer that may not run further ahead: staleness, or the buffer."""
    WASTED = "wasted"
    """Generating what was filtered or lost."""
    OTHER = "other"
    """Between the activities: logging, saving, nothing at all."""


GENERATION = "generation"
"""The activity that waste is a share of."""
_OF_ACTIVITY: Mapping[str, Category] = {
    "training": Category.COMPUTE,
    "log probabilities": Category.COMPUTE,
    GENERATION: Category.COMPUTE,
    "evaluation": Category.COMPUTE,
    "waiting for data": Category.WAITING_FOR_DATA,
    "weights": Category.WAITING_FOR_WEIGHTS,
    "waiting for weights": Category.WAITING_FOR_WEIGHTS,
    "scoring": Category.BLOCKED_BY_REWARDS,
    "back-pressure": Category.BACK_PRESSURE,
}
_OF_ADMISSION: Mapping[Admission, str] = {
    Admission.OPEN: IDLE,
    Admission.STALENESS: "back-pressure",
    Admission.BUFFER: "back-pressure",
    Admission.EXHAUSTED: "waiting for data",
}
_PLURAL = {Role.TRAINER: "trainer", Role.PRODUCER: "producers"}


def waiting_activity(admission: Admission) -> str:
    """What a producer that waits for leases books its time to, by what the coordinator says of new ones."""
    return _OF_ADMISSION[admission]


def by_category(seconds: Mapping[str, float], wasted: float = 0.0) -> dict[Category, float]:
    """Seconds by activity -> seconds by category, every category, with the same sum. ``wasted``: the share of generation, in [0, 1], that
    went into what was thrown away; an activity that is not known is ``OTHER``."""
    if not 0.0 <= wasted <= 1.0:
        raise ValueError(f"the wasted share of generation must lie in [0, 1], got {wasted}")
    sorted_seconds = dict.fromkeys(Category, 0.0)
    for activity, spent in seconds.items():
        sorted_seconds[_OF_ACTIVITY.get(activity, Category.OTHER)] += spent
    thrown_away = wasted * seconds.get(GENERATION, 0.0)
    sorted_seconds[Category.COMPUTE] -= thrown_away
    sorted_seconds[Category.WASTED] += thrown_away
    return sorted_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeShares:
    """Shares of the workers' time by role and category: each role's add up to 1, or are all 0 where it has spent no time."""

    trainer: Mapping[Category, float]
    producers: Mapping[Category, float]

    @classmethod
    def of(cls, times: Iterable[WorkerTime], *, tokens_generated: int = 0, tokens_wasted: int = 0) -> TimeShares:
        """Over all workers of a role. ``tokens_wasted`` of the ``tokens_generated`` went into groups that were filtered or lost; seconds
        of generation are apportioned by them."""
        seconds = seconds_by_role(times)
        return cls(
            trainer=_normalised(by_category(seconds[Role.TRAINER])),
            producers=_normalised(by_category(seconds[Role.PRODUCER], _share(tokens_wasted, tokens_generated))),
        )

    @property
    def trainer_busy(self) -> float:
        """The share of the trainers' time in which they compute."""
        return self.trainer[Category.COMPUTE]

    @property
    def producers_busy(self) -> float:
        """The share of the producers' time in which they compute, for nothing too."""
        return self.producers[Category.COMPUTE] + self.producers[Category.WASTED]

    @property
    def bubble(self) -> float:
        """The share of the trainers' time that goes into waiting for data or for weights."""
        return self.trainer[Category.WAITING_FOR_DATA] + self.trainer[Category.WAITING_FOR_WEIGHTS]

    def figures(self) -> dict[str, float]:
        """Flat, for the summary: the three headlines, then ``trainer/<category>`` and ``producers/<category>``."""
        return {
            "trainer_busy": self.trainer_busy,
            "producers_busy": self.producers_busy,
            "bubble": self.bubble,
            **{f"trainer/{category}": share for category, share in self.trainer.items()},
            **{f"producers/{category}": share for category, share in self.producers.items()},
        }


def step_figures(times: Iterable[WorkerTime], *, tokens_generated: int = 0, tokens_wasted: int = 0) -> dict[str, float]:
    """For ``metrics.jsonl``: seconds of a step as ``time/trainer/<category>`` and ``time/producers/<category>``, summed over workers."""
    seconds = seconds_by_role(times)
    wasted = {Role.TRAINER: 0.0, Role.PRODUCER: _share(tokens_wasted, tokens_generated)}
    return {
        f"time/{_PLURAL[role]}/{category}": spent for role in Role for category, spent in by_category(seconds[role], wasted[role]).items()
    }


def worker_seconds(times: Iterable[WorkerTime], *, tokens_generated: int = 0, tokens_wasted: int = 0) -> dict[str, dict[str, float]]:
    """For ``times.jsonl``: worker -> category -> seconds, every category. Waste is known for all producers together: each has the same
    share of its generation in it, so that the workers of a role sum to ``step_figures``."""
    wasted = {Role.TRAINER: 0.0, Role.PRODUCER: _share(tokens_wasted, tokens_generated)}
    workers: dict[str, dict[str, float]] = {}
    for time in times:
        seconds = workers.setdefault(time.worker, dict.fromkeys(map(str, Category), 0.0))
        for category, spent in by_category(time.seconds, wasted[time.role]).items():
            seconds[category] += spent
    return workers


def _share(part: int, whole: int) -> float:
    """What is thrown away in a step may have been generated before it, so that the part exceeds the whole."""
    return min(1.0, part / whole) if whole > 0 else 0.0


def _normalised(seconds: Mapping[Category, float]) -> dict[Category, float]:
    total = sum(seconds.values())
    return {category: spent / total if total > 0 else 0.0 for category, spent in seconds.items()}
