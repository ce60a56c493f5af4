"""The inputs and outputs of the coordinator: settings, deliveries, verdicts, orders. They hold only numbers, names and enumerations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import ceil, isfinite
from typing import Any

from rlcore.contracts.public_members import EnumMembers

__all__ = ["Delivery", "DeliveryStatus", "GroupSummary", "ScheduleSettings", "SourceSchedule", "TokenCounts", "TrainOrder"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSchedule:
    """The settings of one source of prompts.

    ``prompts``: their number, None if they have no end. ``name``: "" in a run with one source. ``weight``: its share of the draws, in
    proportion to those of the others. ``filter_range``: (lo, hi). A group is effective if
    ``lo < accuracy < hi``.

    Raises ValueError for a number outside its range.
    """

    prompts: int | None
    n_sampled: int
    n_greedy: int = 0
    name: str = ""
    weight: float = 1.0
    filter_range: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _check_least(self, {"prompts": 1, "n_sampled": 1, "n_greedy": 0})
        if not (isfinite(self.weight) and self.weight > 0):
            raise ValueError(f"schedule: the weight of a source must be a finite number above 0, got {self.weight}")
        if self.filter_range is not None:
            low, high = self.filter_range
            if not (isfinite(low) and isfinite(high) and low < high):
                raise ValueError(f"schedule: filter_range must be two finite numbers with low < high, got {self.filter_range}")

    def effective(self, accuracy: float, changed: tuple[float, float] | None = None) -> bool:
        """Return whether a group with this mean accuracy passes the filter. Without a filter every group passes.

        :param changed: the filter range that a controller set, if it did."""
        bounds = changed or self.filter_range
        return bounds is None or bounds[0] < accuracy < bounds[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSettings:
    """The settings of the schedule, passed once before it starts. Every value is resolved, none is "auto".

    ``prompts``: the number of prompts of all sources, None if one has no end; the run then needs ``max_steps``.
    ``episodes``: the run draws so many times ``prompts`` prompts.
    ``sources``: the sources of a run with several. Otherwise () and ``prompts``, ``n_sampled``, ``n_greedy`` and ``filter_range`` are those
        of its only source.
    ``train_batch_size`` (``-tbs``): the groups of one update.
    ``buffer_limit``: the most groups that may be in flight or waiting to be trained, without the batch being trained.
    ``dynamic_batching``: whether groups that are not effective are replaced. Otherwise they keep their place, masked.
    ``shuffle``: whether a source without a sampler of its own is shuffled in every episode.
    ``partial_rollouts``: whether updates leave without groups that would be too old later. Their old tokens then must not train.

    Raises ValueError for a number outside its range.
    """

    prompts: int | None = None
    train_batch_size: int
    n_sampled: int = 1
    buffer_limit: int
    n_greedy: int = 0
    episodes: int = 1
    max_steps: int | None = None
    max_staleness: int = 0
    partial_rollouts: bool = False
    filter_range: tuple[float, float] | None = None
    dynamic_batching: bool = False
    seed: int = 0
    shuffle: bool = True
    sources: tuple[SourceSchedule, ...] = ()

    def __post_init__(self) -> None:
        _check_least(self, {"train_batch_size": 1, "episodes": 1, "max_steps": 1, "max_staleness": 0, "seed": 0})
        endless = any(part.prompts is None for part in self.parts)
        if self.sources:
            object.__setattr__(self, "prompts", None if endless else sum(part.prompts or 0 for part in self.sources))
        if endless and self.max_steps is None:
            raise ValueError("schedule: prompts without end need max_steps")
        if self.buffer_limit < self.train_batch_size:
            raise ValueError(
                f"schedule: buffer_limit must be at least train_batch_size ({self.train_batch_size}), or no batch could ever fill; "
                f"got {self.buffer_limit}"
            )

    @property
    def parts(self) -> tuple[SourceSchedule, ...]:
        """The sources of the run, at least one."""
        own = ("prompts", "n_sampled", "n_greedy", "filter_range")
        return self.sources or (SourceSchedule(**{name: getattr(self, name) for name in own}),)

    @property
    def draws(self) -> int | None:
        """The number of prompts that the run may draw, None without end."""
        return None if self.prompts is None else self.episodes * self.prompts

    @property
    def alternating(self) -> bool:
        """True if the schedule alternates between generation and training: no group may be older than the policy that trains on it."""
        return self.max_staleness == 0

    @property
    def horizon(self) -> int:
        """The number of updates for the learning-rate schedule: ``max_steps``, else the number that all episodes contain."""
        if self.max_steps is not None:
            return self.max_steps
        assert self.draws is not None
        return ceil(self.draws / self.train_batch_size)


def _check_least(settings: Any, least: Mapping[str, int]) -> None:
    for name, lowest in least.items():
        value = getattr(settings, name)
        if value is not None and value < lowest:
            raise ValueError(f"schedule: {name} must be at least {lowest}, got {value}")


class DeliveryStatus(StrEnum, metaclass=EnumMembers):
    """The coordinator's decision on a delivered group."""

    KEPT = "kept"
    """It will be trained: keep its payload."""
    MASKED = "masked"
    """Filtered, but it keeps its place in a batch, in the statistics and not in the loss: keep its payload."""
    FILTERED = "filtered"
    """Filtered and replaced: drop its payload."""
    FAILED = "failed"
    """Recorded as failed: drop its payload."""
    UNKNOWN = "unknown"
    """Its lease is no longer held (it ended, or another worker has the prompt now): drop its payload."""

    @property
    def kept(self) -> bool:
        """True if the payload must be kept until its batch is trained."""
        return self in (DeliveryStatus.KEPT, DeliveryStatus.MASKED)


@dataclass(frozen=True, slots=True, kw_only=True)
class Delivery:
    """The report that a group is complete and judged. Its payload stays where it is; only this record travels.

    ``version``: the smallest version of its tokens, or its lease's version if it has no tokens.
    ``source``: the name of the prompt's source, "" in a run without ``[[sources]]``.
    ``accuracy``: the group's mean, over ``in_statistics``, of the reward that the filter reads.
    ``reward``: the group's mean reward over ``in_statistics``, None if no rollout was judged.
    ``failed``: the reason if no rollout could be judged: a short phrase from a small set, because the ledger counts by it.
    ``removed``: how many rollouts each filter of the run removed from the loss, by its name, without those that removed none.
    ``filtered``: the filter that left no rollout of the group in the loss; "" if some may train.
    """

    lease_id: int
    version: int
    source: str = ""
    accuracy: float | None = None
    reward: float | None = None
    failed: str = ""
    removed: tuple[tuple[str, int], ...] = ()
    filtered: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """Other facts about a delivered group that a run records.

    ``reason``: why its prompt failed, if that is the verdict. ``cut_tokens``: tokens of rollouts that were cut (``sampling.oversampling``)
    and are not in the group.
    """

    delivery: Delivery
    prompt_id: str
    tokens: int
    reason: str = ""
    cut_tokens: int = 0


@dataclass(frozen=True, slots=True)
class TokenCounts:
    """The number of tokens in delivered groups, and of those that trained nothing.

    Wasted tokens were filtered, masked, failed, late, lost afterwards, or cut before the answer ended.
    """

    generated: int = 0
    wasted: int = 0

    def plus(self, tokens: int, *, wasted: bool, cut: int = 0) -> TokenCounts:
        """Return the counts with one more group, and with its cut tokens."""
        return TokenCounts(self.generated + tokens + cut, self.wasted + tokens * wasted + cut)

    def lost(self, tokens: int) -> TokenCounts:
        """Return the counts after the loss of a group that was counted as useful."""
        return TokenCounts(self.generated, self.wasted + tokens)

    def since(self, earlier: TokenCounts) -> TokenCounts:
        """Return the difference from an earlier count."""
        return TokenCounts(self.generated - earlier.generated, self.wasted - earlier.wasted)


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainOrder:
    """The order to train one batch: the update ``version`` -> ``version + 1``.

    ``lease_ids``: in the order in which their prompts were drawn.
    ``versions``: of these groups, in the same order.
    ``masked``: the groups that count in the statistics and not in the loss.
    """

    version: int
    lease_ids: tuple[int, ...]
    versions: tuple[int, ...]
    masked: frozenset[int] = frozenset()
