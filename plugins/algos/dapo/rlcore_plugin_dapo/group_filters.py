"""Filters of groups: by the spread of the rewards, by rank, by length."""

from __future__ import annotations

from statistics import pstdev
from typing import Annotated, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlcore.api import Group, GroupFilter

__all__ = ["BestOfN", "BestOfNOptions", "LengthRange", "LengthRangeOptions", "RewardSpread", "RewardSpreadOptions"]


class RewardSpreadOptions(BaseModel):
    """Options of ``reward_spread``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_std: Annotated[float, Field(ge=0, allow_inf_nan=False)] = Field(
        default=1e-6, description="least standard deviation of the rewards of a group"
    )


class RewardSpread(GroupFilter):
    """Keeps a group whose rewards differ enough; other groups are filtered as a whole."""

    def __init__(self, options: RewardSpreadOptions | None = None) -> None:
        self.options = options or RewardSpreadOptions()

    def keep(self, group: Group) -> list[bool]:
        """Compare the population standard deviation, over the rewards in the statistics, with ``min_std``."""
        sampled = [score for rollout, score in zip(group.rollouts, group.scores, strict=True) if rollout.kind == "sampled"]
        values = [value for score in sampled if score.in_statistics for value in score.branch_values or (score.value,)]
        return [len(values) > 1 and pstdev(values) >= self.options.min_std] * len(group.rollouts)


class BestOfNOptions(BaseModel):
    """Options of ``best_of_n``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    best: Annotated[int, Field(ge=0)] = Field(default=1, description="how many of the highest rewards of a group train")
    worst: Annotated[int, Field(ge=0)] = Field(default=0, description="how many of the lowest rewards train as well")

    @model_validator(mode="after")
    def _keeps_one(self) -> Self:
        if not self.best + self.worst:
            raise ValueError("best = 0 and worst = 0 keep no rollout; type --best 1")
        return self


class BestOfN(GroupFilter):
    """Keeps the rollouts of the highest rewards, and of the lowest if asked. Of equal rewards the rollout with the lower index is kept."""

    def __init__(self, options: BestOfNOptions | None = None) -> None:
        self.options = options or BestOfNOptions()

    def keep(self, group: Group) -> list[bool]:
        """Rank the rollouts that can train."""
        ranked = [place for place, score in enumerate(group.scores) if score.in_loss]
        best = sorted(ranked, key=lambda place: -group.scores[place].value)[: self.options.best]
        others = [place for place in ranked if place not in best]
        worst = sorted(others, key=lambda place: group.scores[place].value)[: self.options.worst]
        return [place in (*best, *worst) for place in range(len(group.rollouts))]


class LengthRangeOptions(BaseModel):
    """Options of ``length_range``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    min_tokens: Annotated[int, Field(ge=0)] = Field(default=1, description="fewest tokens of a response that trains")
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(default=None, description="most tokens of a response that trains; none: any")

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.max_tokens is not None and self.max_tokens < self.min_tokens:
            raise ValueError(f"max_tokens must be at least min_tokens ({self.min_tokens}); type --max-tokens {self.min_tokens}")
        return self


class LengthRange(GroupFilter):
    """Keeps the responses whose number of sampled tokens is in a range, both ends included."""

    def __init__(self, options: LengthRangeOptions | None = None) -> None:
        self.options = options or LengthRangeOptions()

    def keep(self, group: Group) -> list[bool]:
        """Count the tokens that the policy sampled, in all turns."""
        least, most = self.options.min_tokens, self.options.max_tokens
        return [least <= rollout.length <= (rollout.length if most is None else most) for rollout in group.rollouts]
