"""Rewards, estimators and losses with one planted bug each, all of a kind that has been seen in the wild."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import torch

from rlcore.batches import LossBatch, RewardBatch, TrainBatch
from rlcore.testing import FakeEstimator, FakeLoss, FakeReward
from rlcore.types import Outcome, RewardInput, Score

# --- rewards -----------------------------------------------------------------------------------------------------------


class AcceptsSubstring(FakeReward):
    """The gold anywhere in the text: the echoed prompt is right."""

    def score(self, item: RewardInput) -> Score:
        return self._verdict(item.columns["gt_answer"] in item.text)


class RaisesOnEmpty(FakeReward):
    def score(self, item: RewardInput) -> Score:
        item.text.split()[0]
        return super().score(item)


class CountsCalls(FakeReward):
    """A bonus that shrinks with every call."""

    calls = 0

    def score(self, item: RewardInput) -> Score:
        self.calls += 1
        return replace(super().score(item), value=super().score(item).value + 1 / self.calls)


class ReadsUndeclared(FakeReward):
    def score(self, item: RewardInput) -> Score:
        item.columns["other"]
        return super().score(item)


class BlamesItself(FakeReward):
    """An unparseable text as the judge's accident: masked, so that writing rubbish costs nothing."""

    def score(self, item: RewardInput) -> Score:
        if not item.text.isascii():
            return Score.failed(Outcome.ERROR, "cannot parse")
        return super().score(item)


class NotANumber(FakeReward):
    """A length penalty that divides by the number of words."""

    def score(self, item: RewardInput) -> Score:
        score = super().score(item)
        return replace(score, value=score.value / np.float64(len(item.text.split()))) if item.text.split() else replace(score, value=np.nan)


class ChangesColumns(FakeReward):
    def score(self, item: RewardInput) -> Score:
        if "seen" not in item.columns:
            item.columns["seen"] = True  # type: ignore[index]
        return super().score(item)


class NoAccuracy(FakeReward):
    def score(self, item: RewardInput) -> Score:
        return replace(super().score(item), accuracy=None)


class GroupOutOfOrder(FakeReward):
    def score_group(self, items: Sequence[RewardInput]) -> list[Score]:
        return sorted(super().score_group(items), key=lambda score: -score.value)


# --- estimators --------------------------------------------------------------------------------------------------------


class CountsMasked(FakeEstimator):
    """The mean over all rollouts of the group, failed rewards too."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return super().estimate(replace(batch, in_statistics=np.ones_like(batch.in_statistics)))


class DividesByZero(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        centred = super().estimate(batch)
        with np.errstate(all="ignore"):
            return centred / np.array([centred[batch.group == group].std() for group in batch.group])


class RoundsOff(FakeEstimator):
    """The mean of equal rewards is not exactly the reward, and a tiny deviation is divided by a tiny one."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        mean = {group: batch.rewards[(batch.group == group) & batch.in_statistics].sum() for group in set(batch.group.tolist())}
        size = {group: max(1, int((batch.in_statistics & (batch.group == group)).sum())) for group in mean}
        return np.array([reward - mean[group] / size[group] for reward, group in zip(batch.rewards, batch.group.tolist(), strict=True)])


class NeedsSortedGroups(FakeEstimator):
    """Takes runs of equal group numbers for groups: right only while nobody interleaves them."""

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        runs = np.concatenate([[0], np.cumsum(np.diff(batch.group) != 0)])
        return super().estimate(replace(batch, group=runs))


class WeighsByGroupNumber(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return super().estimate(batch) / (1.0 + batch.group)


class RunningBaseline(FakeEstimator):
    total = 0.0

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        self.total += float(batch.rewards.mean())
        return super().estimate(batch) - self.total * 1e-3 * batch.in_statistics


class SinglePrecision(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return super().estimate(batch).astype(np.float32)


class UpsideDown(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return -super().estimate(batch)


class CentresInPlace(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        result = super().estimate(batch)
        batch.rewards[:] = result
        return result


# --- losses ------------------------------------------------------------------------------------------------------------


class WhitensPerMicroBatch(FakeLoss):
    """Advantages centred over whatever happens to be in the micro-batch."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs, replace(batch, advantages=batch.advantages - batch.advantages.mean()))


class Overflows(FakeLoss):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        ratio = (logprobs - batch.old_logprobs).exp()
        return -torch.minimum(ratio * batch.advantages, ratio.clamp(0.8, 1.2) * batch.advantages)


class Ascends(FakeLoss):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return -super().per_token(logprobs, batch)


class SumsUp(FakeLoss):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs, batch).mean()


class DetachesTheRatio(FakeLoss):
    """The ratio detached and nothing put in its place: half of the gradient is gone."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        ratio = (logprobs - batch.old_logprobs).exp()
        return -batch.advantages * (0.5 * ratio + 0.5 * ratio.detach())


class ScalesInPlace(FakeLoss):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        batch.advantages.mul_(0.5)
        return super().per_token(logprobs, batch)


class DropsTokens(FakeLoss):
    """Unkeyed randomness."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs, batch) * (torch.rand(len(logprobs)) > 0.5)


class PreparesPerRollout(FakeLoss):
    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        return {"rank": np.arange(len(batch.advantages))}
