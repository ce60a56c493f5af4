"""How the time of the training loop was spent, by worker and activity, from its first lease to its last update.

Workers in any process report their times (``rlcore.schedule.WorkerTime``). This module sorts their activities into a few categories, which
become the figures of a step, the shares of the run, and the rows of its trace. Its memory is bounded, whatever the length of the run.
"""

from __future__ import annotations

import cProfile
import resource
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from rlcore.schedule import Role, Timeline, WorkerTime

__all__ = ["Category", "Timing", "by_category", "peak_memory", "profiled"]

_SPANS_A_WORKER = 5_000
_SPANS = 300_000
"""The maximum for all workers of the trace. With very many workers, each is drawn more coarsely."""

_Seconds = dict[tuple[str, Role], dict[str, float]]
"""Seconds by worker and activity."""


class Category(StrEnum):
    """The purpose of a worker's time. Each second belongs to exactly one category."""

    COMPUTE = "compute"
    """Training, generating data that is trained on, or evaluating."""
    WAITING_FOR_DATA = "waiting_for_data"
    """A trainer without a batch, or a producer for which there is nothing to lease."""
    WAITING_FOR_WEIGHTS = "waiting_for_weights"
    """Publishing, awaiting or loading weights: the whole cost of weights."""
    BLOCKED_BY_REWARDS = "blocked_by_rewards"
    """A producer that only waits for verdicts."""
    BLOCKED_BY_ENVIRONMENTS = "blocked_by_environments"
    """A producer that only waits for episodes, which wait for something outside of rlcore."""
    BLOCKED_BY_TOOLS = "blocked_by_tools"
    """The same, if most of these episodes wait for a tool that the policy has called."""
    BACK_PRESSURE = "back_pressure"
    """A producer that may not run further ahead, because of staleness or the buffer."""
    WASTED = "wasted"
    """Generating data that was filtered or lost."""
    OTHER = "other"
    """The time between activities: logging, saving or idling."""


_GENERATION = "generation"
"""The activity that waste is a share of."""
_OF_ACTIVITY: Mapping[str, Category] = {
    "training": Category.COMPUTE,
    "log probabilities": Category.COMPUTE,
    _GENERATION: Category.COMPUTE,
    "evaluation": Category.COMPUTE,
    "waiting for data": Category.WAITING_FOR_DATA,
    "weights": Category.WAITING_FOR_WEIGHTS,
    "waiting for weights": Category.WAITING_FOR_WEIGHTS,
    "scoring": Category.BLOCKED_BY_REWARDS,
    "waiting for environments": Category.BLOCKED_BY_ENVIRONMENTS,
    "waiting for tools": Category.BLOCKED_BY_TOOLS,
    "back-pressure": Category.BACK_PRESSURE,
}
_PLURAL: Mapping[str, str] = {Role.TRAINER: "trainer", Role.PRODUCER: "producers"}


def by_category(seconds: Mapping[str, float], wasted: float = 0.0) -> dict[Category, float]:
    """Convert seconds by activity to seconds by category. Contains every category and has the same sum.

    :param wasted: the share of generation, in [0, 1], that was thrown away. An unknown activity counts as ``OTHER``."""
    if not 0.0 <= wasted <= 1.0:
        raise ValueError(f"the wasted share of generation must lie in [0, 1], got {wasted}")
    sorted_seconds = dict.fromkeys(Category, 0.0)
    for activity, spent in seconds.items():
        sorted_seconds[_OF_ACTIVITY.get(activity, Category.OTHER)] += spent
    thrown_away = wasted * seconds.get(_GENERATION, 0.0)
    sorted_seconds[Category.COMPUTE] -= thrown_away
    sorted_seconds[Category.WASTED] += thrown_away
    return sorted_seconds


@dataclass(slots=True)
class Timing:
    """Times of a run.

    ``seconds`` is wall-clock time. ``by_activity``: each role's activities, ``idle`` included, sum to that time for each of its workers.
    The trainer's own timings of its steps are below ``trainer/training`` and are part of it. ``step_workers`` maps worker -> category ->
    seconds of the last step that ``step`` closed. ``peaks`` maps worker -> peak memory of its process, in bytes."""

    seconds: float = 0.0
    by_activity: dict[str, float] = field(default_factory=dict)
    step_workers: dict[str, dict[str, float]] = field(default_factory=dict)
    peaks: dict[str, int] = field(default_factory=dict)
    _since: float = 0.0
    _totals: _Seconds = field(default_factory=dict)
    _timelines: dict[tuple[str, Role], Timeline] = field(default_factory=dict)
    _of_step: _Seconds = field(default_factory=dict)
    _generated: int = 0
    _wasted: int = 0

    @classmethod
    def start(cls, moment: float) -> Timing:
        """Start at a ``moment`` of the monotonic clock. The caller discards reports about earlier times."""
        return cls(_since=moment)

    def saw(self, times: Iterable[WorkerTime]) -> None:
        """Add reports. Each may cover any period; the reports of a worker arrive in order."""
        for report in times:
            key = report.worker, report.role
            if report.peak_memory_bytes:
                self.peaks[report.worker] = report.peak_memory_bytes
            for book in (self._totals, self._of_step):
                seconds = book.setdefault(key, {})
                for activity, spent in report.seconds.items():
                    seconds[activity] = seconds.get(activity, 0.0) + spent
            timeline = self._timelines.setdefault(key, Timeline(_SPANS_A_WORKER))
            timeline.limit = min(_SPANS_A_WORKER, max(1, _SPANS // len(self._timelines)))
            for span in report.spans:
                timeline.add(span.activity, span.start, span.end)

    def step(self, *, tokens_generated: int = 0, tokens_wasted: int = 0) -> dict[str, float]:
        """Return the seconds by role and category reported since the last call, for ``metrics.jsonl``. Store them by worker in
        ``step_workers``.

        :param tokens_generated: tokens generated since the last call.
        :param tokens_wasted: how many of these (or of earlier ones) belong to groups that were filtered or lost."""
        of_step, self._of_step = self._of_step, {}
        self._generated += tokens_generated
        self._wasted += tokens_wasted
        wasted = _share(tokens_wasted, tokens_generated)
        self.step_workers = _summed(of_step, wasted, 0)
        by_role = _summed(of_step, wasted, 1, Role)
        return {f"time/{_PLURAL[role]}/{category}": spent for role, of in by_role.items() for category, spent in of.items()}

    def stop(self, moment: float, inside_training: Mapping[str, float] | None = None) -> None:
        """Stop at a ``moment`` of the monotonic clock.

        :param inside_training: seconds of the training backend's own parts."""
        self.seconds = moment - self._since
        booked: dict[str, float] = {}
        for (_, role), totals in self._totals.items():
            for activity, spent in totals.items():
                booked[f"{role}/{activity}"] = booked.get(f"{role}/{activity}", 0.0) + spent
        inside = {f"trainer/training/{part}": spent for part, spent in (inside_training or {}).items()}
        self.by_activity = {name: round(spent, 3) for name, spent in {**booked, **inside}.items()}

    def shares(self) -> dict[str, float]:
        """Return the shares of all time reported since the start, for the summary.

        ``trainer/<category>`` and ``producers/<category>`` sum to 1 for each role, or are all 0 if it has spent no time. Three headline
        figures come first: ``trainer_busy`` and ``producers_busy``, the share spent computing (wasted work included), and ``bubble``, the
        trainers' waits for data and weights.
        """
        by_role = _summed(self._totals, _share(self._wasted, self._generated), 1, Role)
        trainer, producers = _normalised(by_role[Role.TRAINER]), _normalised(by_role[Role.PRODUCER])
        return {
            "trainer_busy": trainer[Category.COMPUTE],
            "producers_busy": producers[Category.COMPUTE] + producers[Category.WASTED],
            "bubble": trainer[Category.WAITING_FOR_DATA] + trainer[Category.WAITING_FOR_WEIGHTS],
            **{f"trainer/{category}": share for category, share in trainer.items()},
            **{f"producers/{category}": share for category, share in producers.items()},
        }

    def workers(self) -> dict[str, dict[str, float]]:
        """Return worker -> category -> seconds of all time reported since the start, including the time after the last step."""
        return _summed(self._totals, _share(self._wasted, self._generated), 0)

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """Return rows for ``rlcore_run_timed``: worker, role, activity, start since 1970, seconds. The rows of a worker do
        not overlap."""
        return [
            (worker, str(role), span.activity, span.start, span.seconds)
            for (worker, role), timeline in self._timelines.items()
            for span in timeline.spans()
        ]


def _summed(books: _Seconds, wasted: float, column: int, names: Iterable[str] = ()) -> dict[str, dict[str, float]]:
    """Return seconds by worker (``column`` 0) or by role (1), and by category: all ``names`` and categories, and what else was reported.

    Waste is known only for all producers together. Each is assigned the same share of its generation, ``wasted``."""
    summed = {name: dict.fromkeys(map(str, Category), 0.0) for name in names}
    for key, seconds in books.items():
        own = summed.setdefault(key[column], dict.fromkeys(map(str, Category), 0.0))
        for category, spent in by_category(seconds, wasted if key[1] is Role.PRODUCER else 0.0).items():
            own[category] += spent
    return summed


def _share(part: int, whole: int) -> float:
    """Return the share, at most 1. Tokens thrown away in a step may have been generated before it, so the part may exceed the whole."""
    return min(1.0, part / whole) if whole > 0 else 0.0


def _normalised(seconds: Mapping[str, float]) -> dict[str, float]:
    total = sum(seconds.values())
    return {category: spent / total if total > 0 else 0.0 for category, spent in seconds.items()}


def peak_memory() -> int:
    """Return the peak memory of this process in bytes. On Linux this is not ``getrusage``, which starts from the parent's peak."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Profile the calling thread inside the context (``--enable-profiling``) and write ``path`` at the end. Do nothing if ``path`` is None.

    ``python -m pstats`` and snakeviz open the file."""
    if path is None:
        yield
        return
    profile = cProfile.Profile()
    profile.enable()
    try:
        yield
    finally:
        profile.disable()
        path.parent.mkdir(parents=True, exist_ok=True)
        profile.dump_stats(path)
