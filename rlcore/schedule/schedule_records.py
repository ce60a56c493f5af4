"""What goes into the coordinator and comes out of it: settings, deliveries, verdicts, orders. Numbers, names and closed sets."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isfinite

__all__ = ["Delivery", "DeliveryStatus", "GroupSummary", "ScheduleSettings", "TokenCounts", "TrainOrder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """What the schedule is told once, before it starts; every value is resolved, none is "auto".

    ``prompts`` is the size of the data set, ``train_batch_size`` (``-tbs``) the groups of one update, ``buffer_limit`` the most groups
    that may be in flight or waiting to be trained (the batch being trained is not among them). ``filter_range`` (lo, hi): a group is
    effective where ``lo < accuracy < hi``; with ``dynamic_batching`` the others are replaced, without it they keep their place, masked.

    Raises ValueError for a number out of its range.
    """

    prompts: int
    train_batch_size: int
    n_sampled: int
    buffer_limit: int
    n_greedy: int = 0
    episodes: int = 1
    max_steps: int | None = None
    max_staleness: int = 0
    filter_range: tuple[float, float] | None = None
    dynamic_batching: bool = False
    seed: int = 0
    shuffle: bool = True

    def __post_init__(self) -> None:
        for name, least in _LEAST.items():
            value = getattr(self, name)
            if value is not None and value < least:
                raise ValueError(f"schedule: {name} must be at least {least}, got {value}")
        if self.buffer_limit < self.train_batch_size:
            raise ValueError(
                f"schedule: buffer_limit must be at least train_batch_size ({self.train_batch_size}), or no batch could ever fill; "
                f"got {self.buffer_limit}"
            )
        if self.filter_range is not None:
            low, high = self.filter_range
            if not (isfinite(low) and isfinite(high) and low < high):
                raise ValueError(f"schedule: filter_range must be two finite numbers with low < high, got {self.filter_range}")

    @property
    def alternating(self) -> bool:
        """True if the schedule alternates between generation and training: no group may be older than the policy that trains on it."""
        return self.max_staleness == 0

    @property
    def horizon(self) -> int:
        """The number of updates that the learning-rate schedule is laid out for: ``max_steps``, else what all episodes hold."""
        if self.max_steps is not None:
            return self.max_steps
        return ceil(self.episodes * self.prompts / self.train_batch_size)

    def effective(self, accuracy: float) -> bool:
        """Whether a group of this mean accuracy passes the filter; everything passes where there is none."""
        return self.filter_range is None or self.filter_range[0] < accuracy < self.filter_range[1]


_LEAST = {
    "prompts": 1,
    "train_batch_size": 1,
    "n_sampled": 1,
    "n_greedy": 0,
    "episodes": 1,
    "max_steps": 1,
    "max_staleness": 0,
    "seed": 0,
}


class DeliveryStatus(StrEnum):
    """What became of a delivered group."""

    KEPT = "kept"
    """It will be trained: keep its payload."""
    MASKED = "masked"
    """Filtered, but it keeps its place in a batch, in the statistics and not in the loss: keep its payload."""
    FILTERED = "filtered"
    """Filtered and replaced: drop its payload."""
    FAILED = "failed"
    """Recorded as failed: drop its payload."""
    UNKNOWN = "unknown"
    """Its lease is no longer held (it ended, or its prompt was given to somebody else): drop its payload."""

    @property
    def kept(self) -> bool:
        """True where the payload must be kept until its batch is trained."""
        return self in (DeliveryStatus.KEPT, DeliveryStatus.MASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """A group is complete and judged. Its payload stays where it is; only this travels.

    ``version`` is the smallest version of its tokens (its lease's where it has none), ``accuracy`` the group's mean over
    ``in_statistics`` of the reward that the filter reads, ``failed`` the reason where no rollout could be judged: a short phrase from a
    small set, because the ledger counts by it.
    """

    lease_id: int
    version: int
    accuracy: float | None = None
    failed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """What else a run books of a group that is delivered. ``reason``: why its prompt failed, if that is the verdict; ``cut_tokens``: of
    rollouts that were cut (``sampling.oversampling``), which are not in the group."""

    delivery: Delivery
    prompt_id: str
    tokens: int
    reason: str = ""
    cut_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """TokenCounts of groups that were delivered, and those of them that trained nothing: filtered, masked, failed, late, lost afterwards,
    or cut before the answer ended."""

    generated: int = 0
    wasted: int = 0

    def plus(self, tokens: int, *, wasted: bool, cut: int = 0) -> TokenCounts:
        """With one more group, and what was cut of it."""
        return TokenCounts(self.generated + tokens + cut, self.wasted + tokens * wasted + cut)

    def lost(self, tokens: int) -> TokenCounts:
        """With a group that was counted as good, and is gone."""
        return TokenCounts(self.generated, self.wasted + tokens)

    def since(self, earlier: TokenCounts) -> TokenCounts:
        """What has come after an earlier count."""
        return TokenCounts(self.generated - earlier.generated, self.wasted - earlier.wasted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOrder:
    """Train these now: the update ``version`` -> ``version + 1``.

    ``lease_ids`` in canonical order (episode, position in the episode's order); ``versions`` of these groups, in the same order;
    ``masked``: those that count in the statistics and not in the loss.
    """

    version: int
    lease_ids: tuple[int, ...]
    versions: tuple[int, ...]
    masked: frozenset[int] = frozenset()
