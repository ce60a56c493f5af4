"""What the schedule is told once, before it starts; every value already resolved, no "auto"."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, isfinite

__all__ = ["ScheduleSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The numbers that the coordinator hangs on (CONTRACTS section 2).

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
