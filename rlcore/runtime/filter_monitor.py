"""Watch how many groups the filters remove: first a counted warning, then an error with the reason. A starved run never just waits.

The cost of an update is counted in delivered groups and not in time. Producers may run ahead of the trainer, so the groups delivered
between two updates do not belong to either of them. Every ``train_batch_size`` groups that keep a place make a batch, and the k-th batch
belongs to the k-th update.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rlcore.config.run_config import AlgorithmSection
from rlcore.contracts.errors import StarvationError
from rlcore.schedule import Delivery, DeliveryStatus

__all__ = ["FilterCounts", "FilterMonitor"]

USUAL_LIMIT = AlgorithmSection().filter_limit or 10
"""Batches after which an update counts as starved if the limit is none: the setting's default."""


@dataclass(slots=True)
class FilterCounts:
    """The groups that the filters saw.

    ``filtered`` of them were removed: ``too_hard`` and ``too_easy`` count the missed end of the range, and ``unjudged`` the groups whose
    reward gave no accuracy. ``total`` is the sum of the accuracies of the others. ``rollouts`` and ``emptied`` count the rollouts that each
    filter of ``algorithm.filters`` removed, and the groups of which it left none, by its name."""

    groups: int = 0
    filtered: int = 0
    unjudged: int = 0
    too_hard: int = 0
    too_easy: int = 0
    total: float = 0.0
    rollouts: dict[str, int] = field(default_factory=dict)
    emptied: dict[str, int] = field(default_factory=dict)

    def add(self, delivery: Delivery, bounds: tuple[float, float] | None, *, filtered: bool, judged: bool) -> None:
        """Count a group. It is not ``judged`` if there is no accuracy to filter by."""
        self.groups += 1
        self.filtered += filtered
        if judged:
            for name, removed in delivery.removed:
                self.rollouts[name] = self.rollouts.get(name, 0) + removed
            if delivery.filtered:
                self.emptied[delivery.filtered] = self.emptied.get(delivery.filtered, 0) + 1
        accuracy = delivery.accuracy if judged else None
        if accuracy is None or bounds is None:
            self.unjudged += 1
            return
        self.total += accuracy
        self.too_hard += accuracy <= bounds[0]
        self.too_easy += accuracy >= bounds[1]

    @property
    def accuracy(self) -> float | None:
        """The mean over the groups that have an accuracy; None without such a group."""
        judged = self.groups - self.unjudged
        return self.total / judged if judged else None

    def figures(self, filters: Sequence[str] = (), *, of_range: bool = True) -> dict[str, float]:
        """Return ``accuracy``, and the shares ``too_hard`` and ``too_easy`` of all groups, if there is a range; and for each of ``filters``
        the number of ``NAME/rollouts`` and ``NAME/groups`` that it removed. Figures that do not exist are left out."""
        counts = {f"{name}/{unit}": float(by.get(name, 0)) for name in filters for unit, by in self._by_filter.items()}
        return counts | (self._of_range() if of_range else {})

    @property
    def _by_filter(self) -> dict[str, dict[str, int]]:
        return {"rollouts": self.rollouts, "groups": self.emptied}

    def _of_range(self) -> dict[str, float]:
        if not self.groups:
            return {}
        shares = {"too_hard": self.too_hard / self.groups, "too_easy": self.too_easy / self.groups}
        return shares if self.accuracy is None else {"accuracy": self.accuracy, **shares}


@dataclass(kw_only=True)
class FilterMonitor:
    """Counts every delivered group, in order, and detects starvation. Counts nothing without a filter. The caller of ``saw`` holds the
    lock.

    ``bounds`` is ``filter_range``, ``by`` is ``filter_by``, and ``limit`` is ``filter_limit``, in batches of ``batch_size`` prompts.
    ``filters`` are the names of ``algorithm.filters``.
    """

    bounds: tuple[float, float] | None
    by: str
    batch_size: int
    limit: int | None
    filters: tuple[str, ...] = ()
    sources: Mapping[str, tuple[float, float] | None] = field(default_factory=dict)
    """The range of each source, by its name; {} for a run without ``[[sources]]``. ``bounds`` is then the first of them."""
    starved_updates: int = 0
    """Updates that cost more than a third of the limit."""
    run: FilterCounts = field(default_factory=FilterCounts)
    _since: FilterCounts = field(default_factory=FilterCounts)  # since the last batch with a group to train on
    _batch: FilterCounts = field(default_factory=FilterCounts)
    _batches: deque[FilterCounts] = field(default_factory=deque)
    _ended: dict[str, float] = field(default_factory=dict)  # of each source, since the last update
    _placed: int = 0
    _trainable: bool = False
    _warned: bool = False
    _notes: list[str] = field(default_factory=list)
    _error: str = ""

    def __post_init__(self) -> None:
        self._ended = {f"source/{source}/{name}": 0.0 for source in self.sources for name in ("filtered", "failed")}

    def state(self) -> dict[str, Any]:
        """Return JSON values for a checkpoint between two updates.

        They include groups that are ready and not trained. The watch of the resumed run counts these groups again (at staleness 0 there are
        none)."""
        return {"starved_updates": self.starved_updates, "warned": self._warned, "run": asdict(self.run), "since": asdict(self._since)}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Resume from a ``state``. The budget of the current update does not start anew."""
        self.starved_updates, self._warned = state["starved_updates"], state["warned"]
        self.run, self._since = FilterCounts(**state["run"]), FilterCounts(**state["since"])

    def saw(self, delivery: Delivery, verdict: DeliveryStatus) -> None:
        """Count a delivered group. A group that failed for any reason other than a missing accuracy never reached the filter."""
        if self.sources and verdict is not DeliveryStatus.UNKNOWN:
            self._count(delivery.source, verdict)
        if not self._filtering or verdict is DeliveryStatus.UNKNOWN or delivery.failed:
            return
        filtered = verdict is not DeliveryStatus.KEPT
        bounds = self.sources.get(delivery.source, self.bounds)
        for tally in (self.run, self._since, self._batch):
            tally.add(delivery, bounds, filtered=filtered, judged=verdict is not DeliveryStatus.FAILED)
        if filtered:
            self._judge()
        if verdict.kept:
            self._place(trainable=not filtered)

    def next_update(self) -> dict[str, float]:
        """Return the figures of the update whose batch is complete now: the groups that were filtered for it, and their accuracies."""
        ended, self._ended = self._ended, dict.fromkeys(self._ended, 0.0)
        if not self._filtering:
            return ended
        if not self._batches:
            self._cut()  # the last batch, which is short
        tally = self._batches.popleft()
        return {**ended, "groups/filtered": float(tally.filtered)} | {
            f"filter/{name}": value for name, value in self._figures(tally).items()
        }

    def _count(self, source: str, verdict: DeliveryStatus) -> None:
        """Count the end of a prompt of a source, until the next update."""
        kinds = {"filtered": (DeliveryStatus.FILTERED, DeliveryStatus.MASKED), "failed": (DeliveryStatus.FAILED,)}
        for name, statuses in kinds.items():
            figure = f"source/{source}/{name}"
            self._ended[figure] += verdict in statuses

    @property
    def _filtering(self) -> bool:
        return self.bounds is not None or bool(self.filters)

    def _figures(self, tally: FilterCounts) -> dict[str, float]:
        return tally.figures(self.filters, of_range=self.bounds is not None)

    def take_notes(self) -> list[str]:
        """Return the warnings since the last call."""
        notes, self._notes = self._notes, []
        return notes

    def check(self) -> None:
        """Raise StarvationError once an update has cost more than the limit."""
        if self._error:
            raise StarvationError(self._error)

    def remark(self) -> str:
        """Return a sentence for the end of a run in which the filter removed more than half of the groups; "" for other runs."""
        if 2 * self.run.filtered <= self.run.groups:
            return ""
        return (
            f"{self.run.filtered} of {self.run.groups} groups were removed by {self.observed()}: most of the generated groups were not "
            f"trained; {self.advice()}"
        )

    def observed(self, tally: FilterCounts | None = None) -> str:
        """Return the range and the figures of the filters, of the whole run unless another tally is given."""
        tally = tally or self.run
        by_name = ", ".join(f"{name} ({tally.emptied.get(name, 0)} of the groups)" for name in self.filters)
        own = f"the filters {by_name}" if self.filters else ""
        return " and ".join(filter(None, (self._observed_range(tally, self.bounds) if self.bounds else "", own)))

    def _observed_range(self, tally: FilterCounts, bounds: tuple[float, float]) -> str:
        low, high = bounds
        if self.sources:
            return f"filter_range of the sources (accuracy {tally.accuracy or 0.0:.3g} on average)"
        what = "accuracy" if self.by == "accuracy" else f"the accuracy of reward {self.by}"
        if tally.accuracy is None:
            return f"filter_range {low:g} {high:g} ({what} was given for none of {tally.groups} groups)"
        missing = f", {_percent(tally.unjudged, tally.groups)} without one" if tally.unjudged else ""
        return (
            f"filter_range {low:g} {high:g} ({what} {tally.accuracy:.3g} on average, {_percent(tally.too_hard, tally.groups)} of the "
            f"groups too hard, at or below {low:g}, {_percent(tally.too_easy, tally.groups)} too easy, at or above {high:g}{missing})"
        )

    def figures(self) -> dict[str, float]:
        """Return the filter's figures of the whole run, for the summary; an empty dict without a filter."""
        if not self._filtering:
            return {}
        return {
            **self._figures(self.run),
            "filtered": self.run.filtered,
            "groups": self.run.groups,
            "starved_updates": self.starved_updates,
        }

    def nothing_trained(self, filtered: int, failed: int) -> str:
        """Return the message that ends a run in which all prompts were filtered or failed. ``filtered`` and ``failed`` are their
        numbers."""
        taken = f"{filtered} filtered by {self.observed()}" if filtered else ""
        broken = f"{failed} failed (failures.jsonl in the run folder says why)" if failed else ""
        advice = f"; {self.advice()}" if self.run.groups else ""
        return f"nothing was trained: of {filtered + failed} prompts, {' and '.join(filter(None, (taken, broken)))}{advice}"

    def _judge(self) -> None:
        """Warn, or set the error, if this update has cost too much."""
        cost = self._since.filtered
        if not self._warned and 3 * cost > (self.limit or USUAL_LIMIT) * self.batch_size:
            self._warned = True
            self.starved_updates += 1
            if self.starved_updates & (self.starved_updates - 1) == 0:  # the 1st, 2nd, 4th …: nobody reads what is always there
                self._notes.append(self._warning())
        if self.limit is not None and cost > self.limit * self.batch_size and not self._error:
            self._error = (
                f"the group filter starves the run: {self._taken()}, and filter_limit {self.limit} allows {self.limit * self.batch_size} "
                f"(batches of {self.batch_size}); {self.advice(self._since)}; --filter-limit none continues at any cost"
            )

    def _warning(self) -> str:
        most = (
            "there is no limit" if self.limit is None else f"the run ends beyond {self.limit * self.batch_size} (filter_limit {self.limit})"
        )
        times = "the first update" if self.starved_updates == 1 else f"one of {self.starved_updates} updates"
        return f"warning: {self._taken()}; {most}; it is {times} to cost so much"

    def _taken(self) -> str:
        tally = self._since
        return f"for one update {tally.filtered} of {tally.groups} groups were removed by {self.observed(tally)}"

    def advice(self, tally: FilterCounts | None = None) -> str:
        """Return advice based on the figures, of the whole run unless another tally is given."""
        tally = tally or self.run
        most = max(tally.emptied, key=tally.emptied.__getitem__, default="")
        if most and 2 * tally.emptied[most] > tally.filtered:
            return f"try other prompts (-d), more completions per prompt (-g), or other options of the filter {most}"
        if tally.unjudged > tally.too_hard + tally.too_easy:
            return "filter by a reward that gives an accuracy (--filter-by), or type --filter-range none"
        kind = "easier" if tally.too_hard > tally.too_easy else "harder" if tally.too_easy > tally.too_hard else "other"
        return f"try {kind} prompts (-d), more completions per prompt (-g), or a wider --filter-range"

    def _place(self, *, trainable: bool) -> None:
        self._placed += 1
        self._trainable |= trainable
        if self._placed == self.batch_size:
            self._cut()

    def _cut(self) -> None:
        """Close a complete batch. If part of it trains, close the cost of the update too."""
        self._batches.append(self._batch)
        if self._trainable:
            self._since, self._warned = FilterCounts(), False
        self._batch, self._placed, self._trainable = FilterCounts(), 0, False


def _percent(part: int, whole: int) -> str:
    return f"{100 * part / whole:.0f} %"
