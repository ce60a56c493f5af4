"""Where the seconds of the training loop went: by worker and activity, from its first lease to its last update.

Workers report (``rlcore.schedule.WorkerTime``), near or far. Here their activities are sorted into the few categories that a person asks
about, and become the figures of a step, the shares of the run, and the rows of its trace. What is kept is bounded, however long the run.
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
"""Of all workers of the trace; with very many of them each is drawn more coarsely."""

_Seconds = dict[tuple[str, Role], dict[str, float]]
"""By worker and activity."""


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
    "back-pressure": Category.BACK_PRESSURE,
}
_PLURAL = {Role.TRAINER: "trainer", Role.PRODUCER: "producers"}


def by_category(seconds: Mapping[str, float], wasted: float = 0.0) -> dict[Category, float]:
    """Seconds by activity -> seconds by category, every category, with the same sum. ``wasted``: the share of generation, in [0, 1], that
    went into what was thrown away; an activity that is not known is ``OTHER``."""
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
    """``seconds`` of wall clock; ``by_activity``: each role's activities sum to it, ``idle`` included, for each of its workers. What the
    trainer says of its own steps stands below ``trainer/training`` and is part of it. ``step_workers``: worker -> category -> seconds of
    what ``step`` closed last. ``peaks``: worker -> bytes of its process at their most."""

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
        """From a ``moment`` of the monotonic clock on; what workers would report up to then is thrown away."""
        return cls(_since=moment)

    def saw(self, times: Iterable[WorkerTime]) -> None:
        """Take reports that arrived. Each may cover any stretch of time; a worker's come in order."""
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
        """Seconds by role and category of what was reported since the last call, for ``metrics.jsonl``; by worker they are
        ``step_workers`` from here on. ``tokens_generated`` since then, of which ``tokens_wasted`` (or earlier ones) went into groups that
        were filtered or lost."""
        of_step, self._of_step = self._of_step, {}
        self._generated += tokens_generated
        self._wasted += tokens_wasted
        wasted = _share(tokens_wasted, tokens_generated)
        self.step_workers = _by_worker(of_step, wasted)
        by_role = _by_role(of_step, wasted)
        return {f"time/{_PLURAL[role]}/{category}": spent for role, of in by_role.items() for category, spent in of.items()}

    def stop(self, moment: float, inside_training: Mapping[str, float] | None = None) -> None:
        """Up to a ``moment``. ``inside_training``: the training backend's own parts."""
        self.seconds = moment - self._since
        booked: dict[str, float] = {}
        for (_, role), totals in self._totals.items():
            for activity, spent in totals.items():
                booked[f"{role}/{activity}"] = booked.get(f"{role}/{activity}", 0.0) + spent
        inside = {f"trainer/training/{part}": spent for part, spent in (inside_training or {}).items()}
        self.by_activity = {name: round(spent, 3) for name, spent in {**booked, **inside}.items()}

    def shares(self) -> dict[str, float]:
        """Shares of all that was reported since the start, for the summary: ``trainer/<category>`` and ``producers/<category>``, which add
        up to 1 for each role, or are all 0 where it has spent no time. Before them three headlines: ``trainer_busy`` and
        ``producers_busy``, the time that goes into computing (for nothing too), and ``bubble``, the trainers' waits for data and weights.
        """
        by_role = _by_role(self._totals, _share(self._wasted, self._generated))
        trainer, producers = _normalised(by_role[Role.TRAINER]), _normalised(by_role[Role.PRODUCER])
        return {
            "trainer_busy": trainer[Category.COMPUTE],
            "producers_busy": producers[Category.COMPUTE] + producers[Category.WASTED],
            "bubble": trainer[Category.WAITING_FOR_DATA] + trainer[Category.WAITING_FOR_WEIGHTS],
            **{f"trainer/{category}": share for category, share in trainer.items()},
            **{f"producers/{category}": share for category, share in producers.items()},
        }

    def workers(self) -> dict[str, dict[str, float]]:
        """Worker -> category -> seconds of all that was reported since the start, what came after the last step included."""
        return _by_worker(self._totals, _share(self._wasted, self._generated))

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """For ``rlcore.runlog.trace.write_trace``: worker, role, activity, start since 1970, seconds; none of a worker overlap."""
        return [
            (worker, str(role), span.activity, span.start, span.seconds)
            for (worker, role), timeline in self._timelines.items()
            for span in timeline.spans()
        ]


def _by_role(books: _Seconds, wasted: float) -> dict[Role, dict[Category, float]]:
    """Seconds by role and category, summed over workers; every role and every category. ``wasted``: the producers' share of generation."""
    summed = {role: dict.fromkeys(Category, 0.0) for role in Role}
    for (_, role), seconds in books.items():
        for category, spent in by_category(seconds, wasted if role is Role.PRODUCER else 0.0).items():
            summed[role][category] += spent
    return summed


def _by_worker(books: _Seconds, wasted: float) -> dict[str, dict[str, float]]:
    """Worker -> category -> seconds, every category. Waste is known for all producers together: each has the same share of its generation
    in it, so that the workers of a role sum to ``_by_role``."""
    workers: dict[str, dict[str, float]] = {}
    for (worker, role), seconds in books.items():
        summed = workers.setdefault(worker, dict.fromkeys(map(str, Category), 0.0))
        for category, spent in by_category(seconds, wasted if role is Role.PRODUCER else 0.0).items():
            summed[category] += spent
    return workers


def _share(part: int, whole: int) -> float:
    """What is thrown away in a step may have been generated before it, so that the part exceeds the whole."""
    return min(1.0, part / whole) if whole > 0 else 0.0


def _normalised(seconds: Mapping[Category, float]) -> dict[Category, float]:
    total = sum(seconds.values())
    return {category: spent / total if total > 0 else 0.0 for category, spent in seconds.items()}


def peak_memory() -> int:
    """Bytes of memory of this process at their most. On Linux not ``getrusage``, which begins with what the parent had."""
    with suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


@contextmanager
def profiled(path: Path | None) -> Iterator[None]:
    """Profile the calling thread inside (``--enable-profiling``), and write ``path`` on leaving, a file that ``python -m pstats`` and
    snakeviz open; nothing where it is None."""
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
