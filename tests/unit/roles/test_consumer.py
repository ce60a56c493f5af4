"""The consumer: what it asks of the trainer for each kind of algorithm, and what it makes of the answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from rlcore.batches import RewardBatch, TrainBatch
from rlcore.errors import RunError
from rlcore.interfaces import AdvantageEstimator, Need, Objective, TrainingCapabilities, Which
from rlcore.learning.assemble import BatchSettings
from rlcore.roles.consumer import Algorithm, Consumer
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeLoss, FakeTraining
from rlcore.types import Finish, Group, Kind, Rollout, Score, Segment


@dataclass
class NoObjective:
    needs: frozenset[Need] = frozenset()

    def __call__(self, logprobs: Any, batch: Any) -> Any:
        raise AssertionError("the recording trainer calls no objective")


class RecordingTrainer(FakeTraining):
    """Answers log probabilities of -1 (policy) and -1.5 (reference), and keeps the batches."""

    capabilities = TrainingCapabilities()

    def __init__(self, metrics: Mapping[str, float] | None = None) -> None:
        super().__init__()
        self.asked: list[Which] = []
        self.batches: list[TrainBatch] = []
        self.metrics = metrics or {"loss": 1.0, "grad_norm": 2.0}

    def logprobs(self, batch: TrainBatch, which: Which) -> np.ndarray:
        self.asked.append(which)
        return np.full(int(batch.offsets[-1]), -1.0 if which is Which.POLICY else -1.5, np.float32)

    def update(self, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        self.batches.append(batch)
        return {**self.metrics, "skipped_rollouts": 1.0}


@dataclass
class Seeing(AdvantageEstimator):
    needs_greedy: bool = False
    seen: list[RewardBatch] = field(default_factory=list)

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        self.seen.append(batch)
        return batch.rewards - batch.rewards.mean()


def group(number: int, *, greedy: bool = False, in_loss: bool = True) -> Group:
    def rollout(index: int, kind: Kind) -> Rollout:
        n = 2 + index
        segment = Segment(context_ids=[1, 2], token_ids=[5] * n, logprobs=[-0.5] * n, versions=[0] * n, policy_mask=[True] * n)  # type: ignore[arg-type]
        return Rollout(prompt_id=f"q{number}", index=index, kind=kind, segments=(segment,), text="x", finish=Finish.STOP)

    rollouts = [rollout(0, Kind.SAMPLED), rollout(1, Kind.SAMPLED)] + ([rollout(2, Kind.GREEDY)] if greedy else [])
    scores = [Score(value=float(10 * number + index), in_loss=in_loss) for index in range(len(rollouts))]
    return Group(prompt_id=f"q{number}", episode=0, prompt_index=number, rollouts=tuple(rollouts), scores=tuple(scores))


def consumer(trainer: RecordingTrainer, estimator: Seeing, **changes: Any) -> Consumer:
    algorithm = Algorithm(
        estimator_name="seeing",
        estimator=estimator,
        loss_name="fake",
        loss=FakeLoss(),
        objective=NoObjective(),
        batch=BatchSettings(max_new_tokens=8),
        seed=0,
    )
    return Consumer(trainer, replace(algorithm, **changes), TimeAccount())


def test_on_policy_nothing_is_computed_twice() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing()).update([group(0), group(1)], (), 3)
    assert trainer.asked == []
    assert trainer.batches[0].old_logprobs is None
    assert trainer.batches[0].version == 3


def test_several_optimizer_steps_take_old_log_probabilities_once_before_the_first() -> None:
    trainer = RecordingTrainer()
    metrics = consumer(trainer, Seeing(), updates_per_batch=2, epochs_per_batch=2).update([group(0), group(1)], (), 0)
    assert trainer.asked == [Which.POLICY]
    assert len(trainer.batches) == 4
    assert all(batch.old_logprobs is not None and (batch.old_logprobs == -1.0).all() for batch in trainer.batches)
    assert metrics["optimizer_steps"] == 4
    assert metrics["loss"] == 1.0
    assert metrics["skipped_rollouts"] == 4.0


def test_the_samplers_own_are_used_where_the_run_says_so() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), old_from_trainer=False, updates_per_batch=2).update([group(0), group(1)], (), 0)
    assert trainer.asked == []
    assert all(batch.old_logprobs is not None and (batch.old_logprobs == -0.5).all() for batch in trainer.batches)


def test_a_penalty_in_the_reward_reaches_the_estimator_per_token() -> None:
    trainer, estimator = RecordingTrainer(), Seeing()
    consumer(trainer, estimator, kl_in_reward=0.1, kl_kind="k1").update([group(0)], (), 0)
    assert trainer.asked == [Which.REFERENCE, Which.POLICY]
    (seen,) = estimator.seen
    assert seen.kl_coeff == 0.1
    assert seen.kl is not None
    np.testing.assert_allclose(seen.kl, [0.5] * 5)  # log p - log ref = -1 + 1.5 at each of 2 + 3 tokens


def test_every_epoch_deals_the_batch_anew_and_keeps_the_old_log_probabilities() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), updates_per_batch=3, epochs_per_batch=4).update([group(number) for number in range(6)], (), 0)
    assert trainer.asked == [Which.POLICY]
    deals = [tuple(sorted(set(batch.group.tolist())) for batch in trainer.batches[3 * epoch : 3 * epoch + 3]) for epoch in range(4)]
    assert all(sorted(number for share in deal for number in share) == list(range(6)) for deal in deals)
    assert len({str(deal) for deal in deals}) > 1


def test_one_step_an_epoch_has_old_log_probabilities_too() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), epochs_per_batch=2).update([group(0)], (), 0)
    assert trainer.asked == [Which.POLICY]
    assert [batch.old_logprobs is not None for batch in trainer.batches] == [True, True]


def test_old_ones_are_computed_first_where_a_loss_prepares_with_them() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), objective=NoObjective(frozenset({Need.OLD}))).update([group(0)], (), 0)
    assert trainer.asked == [Which.POLICY]
    assert all(batch.old_logprobs is not None for batch in trainer.batches)


def test_a_batch_carries_the_seed_and_the_version_that_key_its_choices() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), seed=7).update([group(0)], (), 3)
    assert [(batch.seed, batch.version) for batch in trainer.batches] == [(7, 3)]


def test_reference_and_proximal_are_asked_for_only_where_declared() -> None:
    trainer = RecordingTrainer()
    needs = NoObjective(frozenset({Need.REFERENCE, Need.PROXIMAL}))
    consumer(trainer, Seeing(), objective=needs).update([group(0)], (), 0)
    assert sorted(trainer.asked) == [Which.POLICY, Which.REFERENCE]
    assert trainer.batches[0].proximal_logprobs is not None
    assert trainer.batches[0].reference_logprobs is not None


def test_a_greedy_rollout_lends_its_reward_and_never_trains() -> None:
    trainer, estimator = RecordingTrainer(), Seeing(needs_greedy=True)
    consumer(trainer, estimator).update([group(0, greedy=True), group(1)], (), 0)
    (seen,) = estimator.seen
    assert seen.greedy is not None
    assert seen.greedy[0] == 2.0
    assert np.isnan(seen.greedy[1])
    assert len(trainer.batches[0]) == 4


def test_where_nothing_can_train_no_step_is_taken() -> None:
    trainer = RecordingTrainer()
    metrics = consumer(trainer, Seeing()).update([group(0, in_loss=False)], (), 0)
    assert trainer.batches == []
    assert metrics["optimizer_steps"] == 0


def test_masked_groups_stay_in_the_statistics_and_leave_the_loss() -> None:
    trainer, estimator = RecordingTrainer(), Seeing()
    consumer(trainer, estimator).update([group(0), group(1)], {1}, 0)
    assert estimator.seen[0].in_statistics.all()
    assert trainer.batches[0].in_loss.tolist() == [True, True, False, False]


def test_an_update_without_metrics_is_blamed_on_the_backend(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = RecordingTrainer()
    monkeypatch.setattr(trainer, "update", lambda batch, objective: None)
    with pytest.raises(RunError, match=r"RecordingTrainer failed while updating: TypeError: update returned a NoneType"):
        consumer(trainer, Seeing()).update([group(0)], (), 0)


@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_step_that_is_not_finite_ends_the_run_with_advice(name: str) -> None:
    trainer = RecordingTrainer({"loss": 1.0, "grad_norm": 1.0, name: float("nan")})
    with pytest.raises(RunError, match="diverged; lower the learning rate"):
        consumer(trainer, Seeing()).update([group(0)], (), 0)
