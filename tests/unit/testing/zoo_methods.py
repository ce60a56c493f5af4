"""Rewards, estimators and losses with one planted bug each, all of a kind that has been seen in the wild."""

from __future__ import annotations

import warnings
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from rlcore.contracts.batches import LossBatch, Normalisers, RewardBatch, TrainBatch
from rlcore.contracts.interfaces import Need
from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.learning.aggregation import TokenLevel
from rlcore.learning.correction import Truncated
from rlcore.learning.kl import K1, K2, K3
from rlcore.testing.algorithms.fake_algorithms import FakeBaseline, FakeEstimator, FakeLoss
from rlcore.testing.rewards.fake_reward import FakeReward

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


class ForgetsToSave(FakeBaseline):
    """Its state is one number, and what it goes on from is two."""

    steps = 0

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        self.steps += 1
        return super().estimate(batch) * (1.0 + 0.1 * self.steps)


class SavesObjects(FakeBaseline):
    def state(self) -> Mapping[str, Any]:
        return {"means": np.array([self._means], object)}


class SharesItsState(FakeBaseline):
    """Every instance goes on from what the others saw."""

    def __init__(self) -> None:
        self._means = _SHARED


_SHARED: dict[str, float] = {}


class NeedsByName(FakeEstimator):
    needs = frozenset({"part"})  # type: ignore[arg-type]


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


class PerTokenWithoutAWord(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return np.repeat(super().estimate(batch), batch.lengths)


class CentresInPlace(FakeEstimator):
    def estimate(self, batch: RewardBatch) -> np.ndarray:
        result = super().estimate(batch)
        batch.rewards[:] = result
        return result


class TakesGreedyAsItIs(FakeEstimator):
    """A prompt whose greedy completion was not judged has NaN for a baseline."""

    needs_greedy = True

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        assert batch.greedy is not None
        return np.where(batch.in_statistics, batch.rewards - batch.greedy[batch.group], 0.0)


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


class AveragesInSilence(FakeLoss):
    """The mean over each rollout, without saying that it combines tokens."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs, batch) / batch.lengths[batch.row]


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


class Prepares(FakeLoss):
    """Weighs tokens by what ``choose`` says; the bugs below choose wrongly."""

    def choose(self, batch: TrainBatch) -> np.ndarray:
        raise NotImplementedError

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        return {"keep": np.asarray(self.choose(batch)).astype(np.float32)}

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs, batch) * (0.5 + batch.extras["keep"])


class TakesEverySecond(Prepares):
    def choose(self, batch: TrainBatch) -> np.ndarray:
        return np.arange(len(batch.advantages)) % 2


class DrawsByPlace(Prepares):
    """Seeded, so that every rank agrees; still the n-th number goes to whatever token comes n-th."""

    share = 0.5

    def choose(self, batch: TrainBatch) -> np.ndarray:
        return np.random.default_rng(batch.seed).uniform(size=len(batch.advantages)) < self.share


class DrawsRarelyByPlace(DrawsByPlace):
    share = 1e-3


class KeysByGroupNumber(Prepares):
    """A group's number is its place in this batch, not its prompt."""

    def choose(self, batch: TrainBatch) -> np.ndarray:
        return np.repeat(batch.group % 2, batch.lengths)


class BreaksTiesByPlace(Prepares):
    """The tenth with the largest advantages, which many tokens share: the first of them in the batch."""

    def choose(self, batch: TrainBatch) -> np.ndarray:
        chosen = np.argsort(-batch.advantages, kind="stable")[: len(batch.advantages) // 10]
        return np.isin(np.arange(len(batch.advantages)), chosen)


class ReadsTokensInSilence(Prepares):
    """Token ids, in a loss that says that it does not look at them."""

    reads_tokens = False

    def choose(self, batch: TrainBatch) -> np.ndarray:
        ids = [segment.token_ids[segment.policy_mask] for rollout in batch.rollouts for segment in rollout.segments]
        return np.concatenate(ids) > 4


class ChoosesByKey(Prepares):
    """No bug: the tenth with the lowest old log probabilities, ties broken by what a token is."""

    needs = frozenset({Need.OLD})
    reads_tokens = False

    def choose(self, batch: TrainBatch) -> np.ndarray:
        assert batch.old_logprobs is not None
        keys = [
            (old, zlib.crc32(f"{batch.seed},{batch.version},{rollout.prompt_id},{rollout.index},{token}".encode()), place)
            for rollout, start, length in zip(batch.rollouts, batch.offsets, batch.lengths, strict=False)
            for token, (old, place) in enumerate(
                zip(batch.old_logprobs[start : start + length].tolist(), range(start, start + length), strict=True)
            )
        ]
        chosen = [place for _, _, place in sorted(keys)[: len(keys) // 10]]
        return np.isin(np.arange(len(keys)), chosen)


class NeedsOldInSilence(Prepares):
    def choose(self, batch: TrainBatch) -> np.ndarray:
        assert batch.old_logprobs is not None
        return batch.old_logprobs < -1.0


class TurnsNoneIntoNan(Prepares):
    """None becomes NaN, NaN is below nothing, and nothing is chosen without a word."""

    def choose(self, batch: TrainBatch) -> np.ndarray:
        return np.broadcast_to(np.asarray(batch.old_logprobs, np.float64) < -1.0, batch.advantages.shape)


class NeedsReferenceInSilence(Prepares):
    needs = frozenset({Need.OLD})

    def choose(self, batch: TrainBatch) -> np.ndarray:
        assert batch.old_logprobs is not None
        assert batch.reference_logprobs is not None
        return batch.old_logprobs < batch.reference_logprobs


class ClipsWhatItIsLent(Prepares):
    """In ``prepare``: the weights of the whole update, halved on the way."""

    def choose(self, batch: TrainBatch) -> np.ndarray:
        batch.weights[:] = batch.weights / 2
        return batch.weights > 0


class WritesAroundTheFlag(Prepares):
    """Torch on the array's memory does not ask whether it may."""

    def choose(self, batch: TrainBatch) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.from_numpy(batch.rollout_logprobs).sub_(1.0)
        return batch.advantages > 0


class PreparesNan(Prepares):
    def choose(self, batch: TrainBatch) -> np.ndarray:
        return np.where(batch.advantages > 0, 1.0, np.nan)


class WritesAfterUse(FakeLoss):
    """The gradient still needs what is overwritten: torch would refuse, far from here."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        values = super().per_token(logprobs, batch)
        batch.advantages.zero_()
        return values


class OverwritesOld(FakeLoss):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        batch.old_logprobs.clamp_(min=-1.0)
        return super().per_token(logprobs, batch)


class ClampsWide(FakeLoss):
    """Changes nothing at the advantages of the suite, and a good deal in a run."""

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        batch.advantages.clamp_(-50.0, 50.0)
        return super().per_token(logprobs, batch)


class OverwritesExtras(Prepares):
    def choose(self, batch: TrainBatch) -> np.ndarray:
        return batch.advantages > 0

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        batch.extras["keep"].add_(1.0)
        return super().per_token(logprobs, batch)


class ReplacesExtras(OverwritesExtras):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        batch.extras["keep"] = batch.extras["keep"] + 1.0  # type: ignore[index]
        return Prepares.per_token(self, logprobs, batch)


class OverwritesLogprobs(FakeLoss):
    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor:
        return super().per_token(logprobs.clamp_(min=-2.0), batch)


# --- around the loss ---------------------------------------------------------------------------------------------------


class CountsWhatIsMasked(TokenLevel):
    """The mean over all tokens, those outside the loss too."""

    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        return np.full(int(lengths.sum()), 1.0 / lengths.sum()) if lengths.sum() else np.zeros(0)


class SumsTokens(TokenLevel):
    def weights(self, lengths: np.ndarray, in_loss: np.ndarray, group: np.ndarray, normalisers: Normalisers) -> np.ndarray:
        return np.ones(int(lengths.sum()))


class FlatBeyondItsClamp(K3):
    """exp without a tangent: infinite for the tokens that drifted furthest."""

    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return (reference - logprobs).exp() - 1.0 - (reference - logprobs)


class ScoreFunction(K1):
    """k1 as a penalty with its own gradient, which is nothing in expectation."""

    def penalty(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        return self.estimate(logprobs, reference)


class CentresOverTheBatch(K2):
    def estimate(self, logprobs: torch.Tensor, reference: torch.Tensor) -> torch.Tensor:
        values = super().estimate(logprobs, reference)
        return values - values.mean() if len(values) > 1 else values


class CarriesAGradient(Truncated):
    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        return (batch.old_logprobs - batch.rollout_logprobs).clamp(-1.0, 0.5).exp(), super().weights(batch)[1]


class NormalisesOverTheBatch(Truncated):
    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        weights, cut = super().weights(batch)
        return weights / weights.mean(), cut


class NeverHolds(Truncated):
    def weights(self, batch: LossBatch) -> tuple[torch.Tensor, torch.Tensor]:
        return Truncated().weights(batch)
