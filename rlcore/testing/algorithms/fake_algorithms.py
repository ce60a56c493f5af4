"""A simple fake of each part of an algorithm, and estimators that keep a state or read more of the batch. None imports torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.batches import LossBatch, Normalisers, RewardBatch
from rlcore.contracts.group_filter import GroupFilter
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, RewardDetail
from rlcore.contracts.loss_wrappers import Aggregation, Correction, KlEstimator
from rlcore.contracts.training_settings import LearningRateSchedule
from rlcore.contracts.types import Group
from rlcore.learning.aggregation import ConstantLength, SampleLevel, TokenLevel
from rlcore.learning.kl import K1, K2, K3, AbsoluteKl
from rlcore.testing.fake_plugin import FAKE_CORRECTION, FAKE_CREDIT, FAKE_LOSS

if TYPE_CHECKING:
    import torch

__all__ = [
    "AGGREGATIONS",
    "KL_ESTIMATORS",
    "FakeAggregation",
    "FakeBaseline",
    "FakeCorrection",
    "FakeCredit",
    "FakeEstimator",
    "FakeGroupFilter",
    "FakeKl",
    "FakeKlOptions",
    "FakeLearningRateSchedule",
    "FakeLoss",
]


AGGREGATIONS: Mapping[str, Aggregation] = {
    "token_level": TokenLevel(),
    "sample_level": SampleLevel(),
    "constant_length": ConstantLength(),
}
"""The core's, by their names."""

KL_ESTIMATORS: Mapping[str, KlEstimator] = {"k1": K1(), "k2": K2(), "k3": K3(), "absolute": AbsoluteKl()}
"""The core's, by their names."""


class FakeEstimator(AdvantageEstimator):
    """A rollout's reward minus its group's mean, over the rollouts in statistics; 0 for the others."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return the advantages, float64[R]."""
        return _centred(batch, batch.rewards)


class FakeBaseline(AdvantageEstimator):
    """A rollout's reward minus the running mean of its prompt's rewards, those of this batch not in it; 0 at the prompt's first batch."""

    needs = frozenset({RewardDetail.PROMPT_IDS})
    decay = 0.5

    def __init__(self) -> None:
        self._means: dict[str, float] = {}

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return the advantages, float64[R]."""
        assert batch.prompt_ids is not None
        advantages = np.zeros(len(batch.rewards))
        for group in np.unique(batch.group[batch.in_statistics]):
            members = (batch.group == group) & batch.in_statistics
            now, prompt = float(np.sort(batch.rewards[members]).mean()), batch.prompt_ids[group]
            if (mean := self._means.get(prompt)) is not None:
                advantages[members] = batch.rewards[members] - mean
                now = self.decay * mean + (1.0 - self.decay) * now
            self._means[prompt] = now
        return advantages

    def state(self) -> Mapping[str, np.ndarray | float]:
        """Return the prompts and their means."""
        return {"prompts": np.array(list(self._means), np.str_), "means": np.array(list(self._means.values()), np.float64)}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        """Continue with the means of ``state``."""
        self._means = dict(zip(state["prompts"].tolist(), state["means"].tolist(), strict=True))


class FakeCredit(AdvantageEstimator, spec=FAKE_CREDIT):
    """One advantage a token: the remaining token rewards of its turn, plus a centred sum of the reward's parts, minus the sampler's
    surprise relative to the mean of its rollout."""

    needs = frozenset({RewardDetail.PARTS, RewardDetail.TOKEN_REWARDS, RewardDetail.TURNS, RewardDetail.ROLLOUT_LOGPROBS})

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        """Return one value a token, float64[N]."""
        assert batch.parts is not None
        assert batch.token_rewards is not None
        assert batch.turn_lengths is not None
        assert batch.rollout_logprobs is not None
        left = np.zeros(int(batch.offsets[-1]))
        start = 0
        for length in batch.turn_lengths:
            turn = slice(start, start + length)
            left[turn] = np.cumsum(batch.token_rewards[turn][::-1])[::-1]
            start += length
        whole = np.zeros(len(batch.rewards))
        for name in sorted(batch.parts):
            whole += _centred(batch, np.nan_to_num(batch.parts[name]))
        surprise = np.zeros_like(left)
        for row in np.flatnonzero(batch.lengths):
            tokens = slice(batch.offsets[row], batch.offsets[row + 1])
            surprise[tokens] = batch.rollout_logprobs[tokens].mean() - batch.rollout_logprobs[tokens]
        return np.where(np.repeat(batch.in_statistics, batch.lengths), left + np.repeat(whole, batch.lengths) - surprise, 0.0)


class FakeLoss(Loss, spec=FAKE_LOSS):
    """``-advantage * ratio``: the policy gradient with importance ratio, not clipped (the ratio's logarithm is capped at 20)."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        """Return one value a token: [n] -> [n]."""
        return -batch.advantages * (logprobs - batch.old_logprobs).clamp(max=20.0).exp()


class FakeAggregation(Aggregation):
    """Mean over the rollouts of a group, then over groups: a prompt weighs the same however many of its rollouts train."""

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        """Return one value a token, float64[N]."""
        trained = in_loss & (lengths > 0)
        groups, place = np.unique(group, return_inverse=True)
        sizes = np.bincount(place, trained, minlength=len(groups))
        per_rollout = np.where(trained, 1.0 / (max(int((sizes > 0).sum()), 1) * np.maximum(sizes, 1)[place]), 0.0)
        return np.repeat(per_rollout / np.maximum(lengths, 1), lengths)


class FakeKlOptions(BaseModel):
    """Options of the ``fake`` KL estimator."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: float = Field(default=1.0, gt=0, description="Nats around 0 in which it is a parabola.")


class FakeKl(KlEstimator):
    """Huber's: d^2 / 2 within ``width`` nats, a straight line beyond."""

    def __init__(self, options: FakeKlOptions | None = None) -> None:
        self.width = (options or FakeKlOptions()).width

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        """Return one value a token, [n]."""
        gap = (reference - logprobs).abs()
        inside = gap.clamp(max=self.width)
        return inside * (gap - 0.5 * inside)


class FakeCorrection(Correction, spec=FAKE_CORRECTION):
    """The geometric mean of the tokens' ratios over their rollout, held within the range."""

    def __init__(self, bounds: tuple[float, float]) -> None:
        self.bounds = bounds

    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the weights, [n], and whether each was cut, bool[n]."""
        free = batch.row_mean((batch.old_logprobs - batch.rollout_logprobs).detach()).clamp(-20.0, 20.0).exp()
        return free.clamp(*self.bounds), (free < self.bounds[0]) | (free > self.bounds[1])


class FakeLearningRateSchedule(LearningRateSchedule):
    """(1 - t)^2 over the run: a parabola that ends at 0."""

    def share(self, step: int, steps: int) -> float:
        """Return the share of the peak."""
        return (1.0 - min(step / steps, 1.0)) ** 2


class FakeGroupFilter(GroupFilter):
    """Keeps the rollouts whose reward is at least the mean of the group."""

    def keep(self, group: Group) -> list[bool]:
        """Return one value for each rollout."""
        values = [score.value for score in group.scores if score.in_loss]
        mean = sum(values) / max(1, len(values))
        return [score.in_loss and score.value >= mean for score in group.scores]


def _centred(batch: RewardBatch, values: np.ndarray) -> np.ndarray:
    """Return float64[R]: each value minus the mean of its group's rollouts in statistics; 0 for the others."""
    centred = np.zeros(len(values))
    for group in np.unique(batch.group[batch.in_statistics]):
        members = np.flatnonzero((batch.group == group) & batch.in_statistics)
        # Relative to the first member, so that equal values cancel exactly whatever their rounding.
        relative = values[members] - values[members[0]]
        centred[members] = relative - relative.mean()
    return centred
