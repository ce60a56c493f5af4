"""Plugins with one planted bug each, all of a kind that has been seen in the wild, and the rule that must catch each of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from suites_of_fakes import FakeEngineSuite, FakeEstimatorSuite, FakeLossSuite, FakeRewardSuite, FakeTrainerSuite

from rlcore.batches import LossBatch, RewardBatch, TrainBatch
from rlcore.interfaces import InFlight, Objective, Reward, Which
from rlcore.snapshots import Snapshot, Tensor
from rlcore.testing import FakeEstimator, FakeInference, FakeLoss, FakePolicy, FakeReward, FakeTraining, FaultyInference
from rlcore.testing.faulty import FaultyInferenceOptions
from rlcore.testing.sampling import noise_stream
from rlcore.types import Completion, Finish, Outcome, Request, RewardInput, Score

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


# --- inference ---------------------------------------------------------------------------------------------------------


class RunsToTheEnd(FakeInference):
    """One poll decodes everything: nothing can be admitted, cancelled or updated meanwhile."""

    def poll(self, timeout: float) -> list[Completion]:
        answers: list[Completion] = []
        while self._running or self._waiting:
            answers += super().poll(timeout)
        return answers


class LogprobsBeforeTemperature(FakeInference):
    """The logits' own log probabilities, whatever the temperature (vLLM's default)."""

    def poll(self, timeout: float) -> list[Completion]:
        requests = {name: running.request for name, running in self._running.items()} | {
            request.request_id: request for request in self._waiting
        }
        return [self._raw(requests[answer.request_id], answer) for answer in super().poll(timeout)]

    def _raw(self, request: Request, answer: Completion) -> Completion:
        sequence = np.concatenate([request.token_ids, answer.token_ids])
        return replace(answer, logprobs=self._policy.logprobs(sequence)[len(request.token_ids) - 1 :].astype(np.float32))


class SharesNoise(FakeInference):
    """One generator for the whole engine: draws depend on what else is running."""

    stream = noise_stream((1, 2, 3, 4))

    def _start(self, request: Request) -> Any:
        running = super()._start(request)
        running.stream = self.stream
        return running


class IgnoresNoise(FakeInference):
    """Every sample of a prompt is the same."""

    def _start(self, request: Request) -> Any:
        return super()._start(replace(request, noise=(0, 0, 0, 0)))


class DropsStopToken(FakeInference):
    def poll(self, timeout: float) -> list[Completion]:
        return [self._cut(answer) for answer in super().poll(timeout)]

    def _cut(self, answer: Completion) -> Completion:
        if answer.finish is not Finish.STOP:
            return answer
        return replace(answer, token_ids=answer.token_ids[:-1], logprobs=answer.logprobs[:-1], versions=answer.versions[:-1])


class GoesOnAfterStopString(FakeInference):
    def _ended(self, running: Any) -> Finish | None:
        running.request = replace(running.request, sampling=replace(running.request.sampling, stop=()))
        return super()._ended(running)


class SamplesAtZero(FakeInference):
    """Greedy by a low temperature."""

    def _start(self, request: Request) -> Any:
        cold = replace(request.sampling, temperature=request.sampling.temperature or 0.7)
        return super()._start(replace(request, sampling=cold))


class ForgetsCancelled(FakeInference):
    def cancel(self, request_ids: Iterable[str]) -> None:
        for name in request_ids:
            self._running.pop(name, None)


class IgnoresCancel(FakeInference):
    def cancel(self, request_ids: Iterable[str]) -> None:
        pass


class LabelsByNewest(FakeInference):
    """Tokens are labelled with the version served when the completion is returned."""

    def poll(self, timeout: float) -> list[Completion]:
        return [replace(answer, versions=np.full(len(answer.versions), self._version)) for answer in super().poll(timeout)]


class TakesDamaged(FakeInference):
    def update(self, snapshot: Snapshot) -> int:
        return super().update(Snapshot.of(snapshot.version, snapshot.tensors))


class SwapsHalf(FakeInference):
    """Loads tensor by tensor into the live model, so that an error leaves it half new."""

    def update(self, snapshot: Snapshot) -> int:
        for name, tensor in sorted(snapshot.tensors.items(), reverse=True):
            self._policy = self._policy.replaced(dict(self._policy.tensors()) | {name: tensor})
        return super().update(snapshot)


class KeepsMissing(FakeInference):
    """``strict=False``: a tensor that did not come keeps its old value."""

    def update(self, snapshot: Snapshot) -> int:
        snapshot.verify()
        return super().update(Snapshot.of(snapshot.version, dict(self._policy.tensors()) | dict(snapshot.tensors)))


class AbortsInSilence(FakeInference):
    """Declares finish and aborts."""

    def _on_new_weights(self) -> None:
        self.cancel(list(self._running))


class FaultyEngineSuite(FakeEngineSuite):
    fault: str

    def make(self, prompts_per_forward: int = 8) -> FakeInference:
        engine = super().make(prompts_per_forward)
        return FaultyInference(engine.context, FaultyInferenceOptions(fault=self.fault))  # type: ignore[arg-type]


# --- training ----------------------------------------------------------------------------------------------------------


class NormalisesPerForward(FakeTraining):
    """Divides by the number of micro-batches, whatever is in them."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        forwards = -(-int(batch.in_loss.sum()) // self.context.rollouts_per_forward)
        return super().update(replace(batch, weights=batch.weights / forwards), objective)


class TrainsMasked(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        weights = np.full_like(batch.weights, batch.weights.max())
        return super().update(replace(batch, weights=weights, in_loss=np.ones_like(batch.in_loss)), objective)


class ClimbsTheLoss(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        return super().update(replace(batch, advantages=-batch.advantages), objective)


class TrainsAtTemperatureOne(FakeTraining):
    def logprobs(self, batch: TrainBatch, which: Which) -> np.ndarray:
        return super().logprobs(replace(batch, temperature=1.0), which)


class OffByOne(FakeTraining):
    def logprobs(self, batch: TrainBatch, which: Which) -> np.ndarray:
        return np.roll(super().logprobs(batch, which), 1)


class PublishesLiveWeights(FakeTraining):
    """The published arrays are the live ones, updated in place."""

    def setup(self, context: Any) -> None:
        super().setup(context)
        self.live = {name: np.array(array) for name, array in self.policy.arrays().items()}

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        for name, array in self.policy.arrays().items():
            self.live[name][:] = array
        return metrics

    def iter_weights(self) -> Iterator[tuple[str, Tensor]]:
        for name, array in self.live.items():
            yield name, Tensor(dtype="float32", shape=array.shape, data=array)


class ForgetsMoments(FakeTraining):
    def load(self, folder: Path) -> None:
        steps = self.optimizer.steps
        super().load(folder)
        self.optimizer.first = {name: np.zeros_like(array) for name, array in self.optimizer.first.items()}
        self.optimizer.steps = max(steps, self.optimizer.steps)


class SavesHalfPrecision(FakeTraining):
    def save_model(self, folder: Path) -> None:
        FakePolicy(*(array.astype(np.float16) for array in self.policy.arrays().values())).save(folder)


class NormAfterClipping(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        return {**metrics, "grad_norm": min(metrics["grad_norm"], self.context.optimizer.max_grad_norm)}


class ReferenceMoves(FakeTraining):
    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        self.reference = self.policy
        return metrics


class LooksAtTheFirst(FakeTraining):
    """Scales by something of the first rollout, so that order shows."""

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        scale = np.float32(1.0 + 0.5 * (batch.group[0] == 0))
        return super().update(replace(batch, advantages=batch.advantages * scale), objective)


class KeepsGradients(FakeTraining):
    """Nobody zeroed the gradients of the update before."""

    carried: TrainBatch | None = None

    def _accumulate(self, batch: TrainBatch, row: int, gradient: Mapping[str, np.ndarray]) -> float:
        if self.carried is not None and self.carried is not batch:
            super()._accumulate(self.carried, row, gradient)
        return super()._accumulate(batch, row, gradient)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = super().update(batch, objective)
        self.carried = batch
        return metrics


class DrawsNoise(FakeTraining):
    """Dropout left on, with a generator that nobody seeded."""

    draws = np.random.default_rng()

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        kept = self.draws.random(len(batch.weights)) > 0.5
        return super().update(replace(batch, weights=batch.weights * kept), objective)


@dataclass(frozen=True)
class Specimen:
    """A suite pointed at a bug, and the rule that must fail."""

    name: str
    suite: Any
    rule: str


def _reward(bug: type[Reward], rule: str) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeRewardSuite,), {"make": lambda self: bug()}), rule)


def _estimator(bug: type[FakeEstimator], rule: str) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeEstimatorSuite,), {"make": lambda self: bug()}), rule)


def _loss(bug: type[FakeLoss], rule: str) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeLossSuite,), {"make": lambda self: bug()}), rule)


def _engine(bug: type[FakeInference], rule: str, in_flight: InFlight = InFlight.FINISH) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeEngineSuite,), {"engine": bug, "in_flight": in_flight}), rule)


def _fault(fault: str, rule: str) -> Specimen:
    return Specimen(f"faulty-{fault}", type(f"{fault.capitalize()}Suite", (FaultyEngineSuite,), {"fault": fault}), rule)


def _trainer(bug: type[FakeTraining], rule: str) -> Specimen:
    return Specimen(bug.__name__, type(f"{bug.__name__}Suite", (FakeTrainerSuite,), {"trainer": bug}), rule)


ZOO = [
    _reward(AcceptsSubstring, "test_hostile_text_earns_nothing"),
    _reward(RaisesOnEmpty, "test_never_raises_on_hostile_text"),
    _reward(CountsCalls, "test_deterministic_and_stateless"),
    _reward(ReadsUndeclared, "test_reads_declared_columns_only"),
    _reward(BlamesItself, "test_never_raises_on_hostile_text"),
    _reward(NotANumber, "test_never_raises_on_hostile_text"),
    _reward(ChangesColumns, "test_columns_are_not_changed"),
    _reward(NoAccuracy, "test_accuracy_as_declared"),
    _reward(GroupOutOfOrder, "test_group_scores_in_order"),
    _estimator(CountsMasked, "test_masked_rollouts_have_no_influence"),
    _estimator(DividesByZero, "test_finite_at_the_edges"),
    _estimator(RoundsOff, "test_equal_rewards_give_zero"),
    _estimator(NeedsSortedGroups, "test_follows_a_permutation"),
    _estimator(WeighsByGroupNumber, "test_groups_may_be_renumbered"),
    _estimator(RunningBaseline, "test_deterministic"),
    _estimator(SinglePrecision, "test_shape_and_type"),
    _estimator(UpsideDown, "test_better_reward_is_not_worse"),
    _estimator(CentresInPlace, "test_inputs_are_not_changed"),
    _loss(WhitensPerMicroBatch, "test_micro_batches_add_up"),
    _loss(WhitensPerMicroBatch, "test_rollouts_do_not_influence_each_other"),
    _loss(Overflows, "test_finite_at_extreme_ratios"),
    _loss(Ascends, "test_follows_the_advantage"),
    _loss(SumsUp, "test_shape_and_type"),
    _loss(DetachesTheRatio, "test_gradient_is_the_derivative"),
    _loss(ScalesInPlace, "test_inputs_are_not_changed"),
    _loss(DropsTokens, "test_deterministic_and_stateless"),
    _loss(PreparesPerRollout, "test_prepare_gives_arrays_per_token"),
    _engine(RunsToTheEnd, "test_streams"),
    _engine(LogprobsBeforeTemperature, "test_logprobs_are_at_the_sampling_temperature"),
    _engine(SharesNoise, "test_noise_does_not_depend_on_batching"),
    _engine(IgnoresNoise, "test_noise_differs_between_rollouts"),
    _engine(DropsStopToken, "test_length_and_finish"),
    _engine(GoesOnAfterStopString, "test_stop_strings"),
    _engine(SamplesAtZero, "test_greedy_takes_the_likeliest_token"),
    _engine(ForgetsCancelled, "test_cancel"),
    _engine(IgnoresCancel, "test_cancel"),
    _engine(LabelsByNewest, "test_update_with_requests_in_flight"),
    _engine(LabelsByNewest, "test_update_with_requests_in_flight", InFlight.RESUME),
    _engine(AbortsInSilence, "test_update_with_requests_in_flight"),
    _engine(TakesDamaged, "test_refuses_a_damaged_snapshot"),
    _engine(SwapsHalf, "test_refuses_a_tensor_of_another_shape"),
    _engine(KeepsMissing, "test_refuses_a_snapshot_that_is_not_whole"),
    _fault("stale", "test_update_serves_the_new_weights"),
    _fault("partial", "test_every_tensor_is_taken"),
    _fault("behind", "test_update_serves_the_new_weights"),
    _fault("loses", "test_every_request_is_answered_once"),
    _fault("repeats", "test_every_request_is_answered_once"),
    _trainer(NormalisesPerForward, "test_gradient_does_not_depend_on_the_cut"),
    _trainer(TrainsMasked, "test_masked_rollouts_do_not_train"),
    _trainer(ClimbsTheLoss, "test_update_lowers_the_objective"),
    _trainer(TrainsAtTemperatureOne, "test_logprobs_are_at_the_batch_temperature"),
    _trainer(OffByOne, "test_logprobs_are_those_of_the_probe"),
    _trainer(PublishesLiveWeights, "test_published_weights_do_not_change"),
    _trainer(ForgetsMoments, "test_continues_exactly"),
    _trainer(SavesHalfPrecision, "test_saved_model_is_the_policy"),
    _trainer(NormAfterClipping, "test_metrics"),
    _trainer(ReferenceMoves, "test_reference_stays"),
    _trainer(LooksAtTheFirst, "test_order_of_rollouts_does_not_matter"),
    _trainer(KeepsGradients, "test_continues_exactly"),
    _trainer(DrawsNoise, "test_two_runs_are_equal"),
]
