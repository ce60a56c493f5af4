"""Where the seconds of the training loop went: by worker and activity, from its first lease to its last update.

Workers report (``rlcore.schedule.WorkerTime``), near or far; here their reports become the figures of a step, the shares of the run, and
the rows of its trace. What is kept is bounded, however long the run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from rlcore.schedule import Role, TimeAccount, Timeline, TimeShares, WorkerTime
from rlcore.schedule.time_shares import step_figures, worker_seconds

__all__ = ["Timing"]

_SPANS_A_WORKER = 5_000
_SPANS = 300_000
"""Of all workers of the trace; with very many of them each is drawn more coarsely."""

_Seconds = dict[tuple[str, Role], dict[str, float]]
"""By worker and activity."""


@dataclass(slots=True)
class Timing:
    """``seconds`` of wall clock; ``by_activity``: each role's activities sum to it, ``idle`` included, for each of its workers. What the
    trainer says of its own steps stands below ``trainer/training`` and is part of it. ``step_workers``: worker -> category -> seconds of
    what ``step`` closed last."""

    seconds: float = 0.0
    by_activity: dict[str, float] = field(default_factory=dict)
    step_workers: dict[str, dict[str, float]] = field(default_factory=dict)
    _since: float = 0.0
    _totals: _Seconds = field(default_factory=dict)
    _timelines: dict[tuple[str, Role], Timeline] = field(default_factory=dict)
    _of_step: _Seconds = field(default_factory=dict)
    _generated: int = 0
    _wasted: int = 0

    @classmethod
    def start(cls, accounts: Mapping[str, TimeAccount] | None = None) -> Timing:
        """From here on; what was booked in ``accounts`` before (start, first evaluation) does not count. Workers elsewhere throw away
        the report that they would make now."""
        since, _ = _collected(accounts)
        return cls(_since=since)

    def collect(self, accounts: Mapping[str, TimeAccount]) -> None:
        """Take the reports of the accounts of this process, which are named by their roles."""
        _, times = _collected(accounts)
        self.saw(times)

    def saw(self, times: Iterable[WorkerTime]) -> None:
        """Take reports that arrived. Each may cover any stretch of time; a worker's come in order."""
        for report in times:
            key = report.worker, report.role
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
        reports = _reports(of_step)
        self.step_workers = worker_seconds(reports, tokens_generated=tokens_generated, tokens_wasted=tokens_wasted)
        return step_figures(reports, tokens_generated=tokens_generated, tokens_wasted=tokens_wasted)

    def stop(self, accounts: Mapping[str, TimeAccount] | None = None, inside_training: Mapping[str, float] | None = None) -> None:
        """Up to here. ``accounts``: as in ``collect``; ``inside_training``: the training backend's own parts."""
        until, times = _collected(accounts)
        self.saw(times)
        self.seconds = until - self._since
        booked: dict[str, float] = {}
        for (_, role), totals in self._totals.items():
            for activity, spent in totals.items():
                booked[f"{role}/{activity}"] = booked.get(f"{role}/{activity}", 0.0) + spent
        inside = {f"trainer/training/{part}": spent for part, spent in (inside_training or {}).items()}
        self.by_activity = {name: round(spent, 3) for name, spent in {**booked, **inside}.items()}

    def shares(self) -> TimeShares:
        """Of all that was reported since the start."""
        return TimeShares.of(_reports(self._totals), tokens_generated=self._generated, tokens_wasted=self._wasted)

    def workers(self) -> dict[str, dict[str, float]]:
        """Worker -> category -> seconds of all that was reported since the start, what came after the last step included."""
        return worker_seconds(_reports(self._totals), tokens_generated=self._generated, tokens_wasted=self._wasted)

    def rows(self) -> list[tuple[str, str, str, float, float]]:
        """For ``rlcore.runlog.trace.write_trace``: worker, role, activity, start since 1970, seconds; none of a worker overlap."""
        return [
            (worker, str(role), span.activity, span.start, span.seconds)
            for (worker, role), timeline in self._timelines.items()
            for span in timeline.spans()
        ]


def _collected(accounts: Mapping[str, TimeAccount] | None) -> tuple[float, list[WorkerTime]]:
    """``TimeAccount.report_together``; (now, []) if this process has no accounts, as the driver of a cluster."""
    return TimeAccount.report_together(accounts) if accounts else (time.monotonic(), [])


def _reports(seconds: _Seconds) -> list[WorkerTime]:
    return [WorkerTime(worker=worker, role=role, seconds=by_activity) for (worker, role), by_activity in seconds.items()]
