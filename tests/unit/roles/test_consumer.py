"""The consumer: what it asks of the trainer for each kind of algorithm, and what it makes of the answers."""

from __future__ import annotations

import time
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.batches import RewardBatch, TrainBatch
from rlcore.contracts.errors import ConfigError, RunError, WeightsError
from rlcore.contracts.interfaces import AdvantageEstimator, ModelRole, Need, Objective, OptimizerSettings, TrainingContext
from rlcore.contracts.snapshots import BUCKET_BYTES, WeightsKind
from rlcore.contracts.specs import TrainingCapabilities
from rlcore.contracts.types import FinishReason, Group, Rollout, RolloutKind, Score, Segment
from rlcore.learning.assemble import BatchSettings
from rlcore.roles.algorithm import Algorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule import Role, TimeAccount
from rlcore.testing import FakeTraining, make_reward_batch, write_fake_model
from rlcore.testing.algorithms.fake_algorithms import KL_ESTIMATORS, FakeBaseline, FakeLoss
from rlcore.testing.weights import HostSource
from rlcore.weights.memory import MemoryPublisher


def made_folder(path: Path) -> Path:
    """A checkpoint's folder exists before the trainer writes into it."""
    path.mkdir(parents=True)
    return path


def training_context(folder: Path) -> TrainingContext:
    model = str(write_fake_model(folder / "model", "abc"))
    optimizer = OptimizerSettings(learning_rate=0.1)
    return TrainingContext(model=model, optimizer=optimizer, rollouts_per_forward=8, tokens_per_forward=512, prompts_per_slice=8)


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
        self.asked: list[ModelRole] = []
        self.batches: list[TrainBatch] = []
        self.metrics = metrics or {"loss": 1.0, "grad_norm": 2.0}

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        self.asked.append(which)
        return np.full(int(batch.offsets[-1]), -1.0 if which is ModelRole.POLICY else -1.5, np.float32)

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
    def rollout(index: int, kind: RolloutKind) -> Rollout:
        n = 2 + index
        segment = Segment(context_ids=[1, 2], token_ids=[5] * n, logprobs=[-0.5] * n, versions=[0] * n, policy_mask=[True] * n)  # type: ignore[arg-type]
        return Rollout(prompt_id=f"q{number}", index=index, kind=kind, segments=(segment,), text="x", finish=FinishReason.STOP)

    rollouts = [rollout(0, RolloutKind.SAMPLED), rollout(1, RolloutKind.SAMPLED)] + ([rollout(2, RolloutKind.GREEDY)] if greedy else [])
    scores = [Score(value=float(10 * number + index), in_loss=in_loss) for index in range(len(rollouts))]
    return Group(prompt_id=f"q{number}", episode=0, prompt_index=number, rollouts=tuple(rollouts), scores=tuple(scores))


def consumer(trainer: RecordingTrainer, estimator: AdvantageEstimator, **changes: Any) -> Consumer:
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
    assert trainer.asked == [ModelRole.POLICY]
    assert len(trainer.batches) == 4
    assert all(batch.old_logprobs is not None and (batch.old_logprobs == -1.0).all() for batch in trainer.batches)
    assert metrics["optimizer_steps"] == 4
    assert metrics["loss"] == 1.0
    assert metrics["skipped_rollouts"] == 4.0


def test_a_backend_receives_segments_unless_the_objective_combines_the_tokens_of_a_rollout() -> None:
    whole = group(0)
    branches = replace(whole, rollouts=tuple(replace(one, segments=one.segments * 3) for one in whole.rollouts))
    for together, forwarded in ((False, 6), (True, 2)):
        trainer = RecordingTrainer()
        made = consumer(trainer, Seeing(), updates_per_batch=2, epochs_per_batch=2, whole_rollouts=together)
        metrics = made.update([branches], (), 0)
        assert [len(batch) for batch in trainer.batches] == [forwarded] * 2
        assert [batch.lengths.sum() for batch in trainer.batches] == [15, 15]
        assert (metrics["rollouts_in_loss"], metrics["tokens"]) == (2.0, 15.0)
        assert len(made.advantages) == 2
    assert len(trainer.asked) == 1


def test_figures_of_an_update_are_means_over_its_steps_and_counts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = iter([{"loss": 1.0, "skipped_rollouts": 2.0}, {"loss": 3.0, "clipped": 0.5, "skipped_rollouts": 0.0}, {"loss": 8.0}])
    trainer = RecordingTrainer()
    monkeypatch.setattr(trainer, "update", lambda batch, objective: next(steps))
    metrics = consumer(trainer, Seeing(), updates_per_batch=3).update([group(number) for number in range(3)], (), 0)
    assert (metrics["loss"], metrics["skipped_rollouts"], metrics["optimizer_steps"]) == (4.0, 2.0, 3.0)
    assert metrics["clipped"] == 0.5  # of the one step that gave it


def test_the_effective_sample_size_is_made_of_sums_over_tokens_and_told_in_place_of_them() -> None:
    """Weights 1, 1, 1 and 3: (6 / 4)^2 / (12 / 4) = 0.75. A mean over steps of such shares, not a share of means."""
    trainer = RecordingTrainer({"loss": 1.0, "sampler_weight": 6 / 4, "sampler_weight_squared": 12 / 4})
    metrics = consumer(trainer, Seeing()).update([group(0), group(1)], frozenset(), 0)
    assert metrics["effective_sample_size"] == pytest.approx(0.75)
    assert not [name for name in metrics if name.startswith("sampler_weight")]
    assert "effective_sample_size" not in consumer(RecordingTrainer(), Seeing()).update([group(0)], frozenset(), 0)


def test_the_advantage_of_each_rollout_is_the_mean_over_its_tokens() -> None:
    made = consumer(RecordingTrainer(), Seeing())
    made.update([group(0, greedy=True), group(1)], frozenset(), 0)
    assert made.advantages.tolist() == [-5.5, -4.5, 4.5, 5.5]  # rewards 0, 1, 10, 11 less their mean; greedy ones have none


def test_an_update_says_how_much_it_trained_on() -> None:
    trainer, estimator = RecordingTrainer(), Seeing()
    metrics = consumer(trainer, estimator).update([group(0), group(1)], {1}, 0)
    # Rewards 0, 1, 10, 11 less their mean 5.5; rollouts of 2 and 3 tokens; the second group trains nothing.
    assert (metrics["tokens"], metrics["rollouts_in_loss"]) == (5.0, 2.0)
    assert metrics["advantage_abs_mean"] == pytest.approx((2 * 5.5 + 3 * 4.5) / 5)


def test_the_samplers_own_are_used_where_the_run_says_so() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), old_from_trainer=False, updates_per_batch=2).update([group(0), group(1)], (), 0)
    assert trainer.asked == []
    assert all(batch.old_logprobs is not None and (batch.old_logprobs == -0.5).all() for batch in trainer.batches)


@pytest.mark.parametrize(("kind", "value"), [("k1", 0.5), ("k2", 0.125)])
def test_a_penalty_in_the_reward_reaches_the_estimator_per_token(kind: str, value: float) -> None:
    trainer, estimator = RecordingTrainer(), Seeing()
    consumer(trainer, estimator, kl_in_reward=0.1, kl_kind=KL_ESTIMATORS[kind]).update([group(0)], (), 0)
    assert trainer.asked == [ModelRole.REFERENCE, ModelRole.POLICY]
    (seen,) = estimator.seen
    assert seen.kl_coeff == 0.1
    assert seen.kl is not None
    np.testing.assert_allclose(seen.kl, [value] * 5)  # log p - log ref = -1 + 1.5 at each of 2 + 3 tokens


def test_what_an_estimator_keeps_is_saved_by_the_first_rank_and_a_loaded_one_goes_on_with_it(tmp_path: Path) -> None:
    def made(rank: int = 0) -> tuple[FakeBaseline, Consumer]:
        estimator = FakeBaseline()
        built = consumer(RecordingTrainer(), estimator)
        return estimator, Consumer(built._backend, built._algorithm, TimeAccount(), rank=rank)

    straight, trained = made()
    trained._backend.setup(context := training_context(tmp_path))
    trained.update([group(0), group(1)], (), 0)
    trained.save(made_folder(tmp_path / "saved"))
    resumed, other = made()
    other._backend.setup(context)
    other.load(tmp_path / "saved")
    assert {name: np.asarray(value).tolist() for name, value in resumed.state().items()} == {"prompts": ["q0", "q1"], "means": [0.5, 10.5]}
    batch = make_reward_batch([3.0, 4.0], [0, 0], needs=straight.needs)
    batch = replace(batch, prompt_ids=("q0",))
    assert resumed.estimate(batch).tolist() == straight.estimate(batch).tolist() == [2.5, 3.5]
    _, second = made(rank=1)
    second._backend.setup(context)
    second.update([group(0)], (), 0)
    second.save(made_folder(tmp_path / "of-rank-1"))
    assert not (tmp_path / "of-rank-1" / "trainer" / "estimator.npz").exists()
    assert (tmp_path / "saved" / "trainer" / "estimator.npz").exists()


def test_a_loaded_one_goes_on_counting_what_was_skipped_and_says_if_another_backend_saved_it(tmp_path: Path) -> None:
    class Another(RecordingTrainer):
        def load(self, folder: Path) -> None:
            raise AssertionError("this state is not its own")

    def made(trainer: RecordingTrainer) -> Consumer:
        trainer.setup(context)
        return Consumer(trainer, consumer(trainer, Seeing())._algorithm, TimeAccount(), max_skipped_steps=1)

    context, skipped = training_context(tmp_path), {"grad_norm": np.inf, "skipped_steps": 1.0}
    trained = made(RecordingTrainer(skipped))
    trained.update([group(0)], (), 0)
    trained.save(tmp_path)
    resumed = made(RecordingTrainer(skipped))
    resumed.load(tmp_path)
    assert resumed.notes == []
    with pytest.raises(RunError, match=r"2 optimizer steps in a row, up to the update of version 1"):
        resumed.update([group(0)], (), 1)
    other = made(Another())
    other.load(tmp_path)
    assert other.notes == [
        f"the checkpoint {tmp_path} is of RecordingTrainer, and Another continues with its model alone: the moments of the optimizer "
        "and its learning rate schedule start anew"
    ]
    with pytest.raises(ConfigError, match=r"the adapters of .* are of the training backend RecordingTrainer, and Another cannot read them"):
        made(Another()).load(tmp_path, model_alone=False)


def test_a_state_that_cannot_be_saved_is_blamed_on_the_estimator(tmp_path: Path) -> None:
    class Keeps(Seeing):
        def state(self) -> Mapping[str, Any]:
            return {"seen": np.array([object()])}

    keeper = consumer(RecordingTrainer(), Keeps())
    keeper._backend.setup(training_context(tmp_path))
    with pytest.raises(RunError, match=r"'seeing' failed while returning its state: TypeError: seen of its state is of type object"):
        keeper.save(made_folder(tmp_path / "saved"))


@pytest.mark.parametrize(
    ("state", "said"),
    [
        ({"file": np.zeros(2)}, "ValueError: its state has the name file, which a file of arrays cannot hold"),
        (None, "has no attribute 'items'"),
    ],
)
def test_what_a_backend_writes_is_waited_for_if_the_estimator_has_no_state_that_can_be_saved(tmp_path: Path, state: Any, said: str) -> None:
    class WritesLong(RecordingTrainer):
        def save_model(self, folder: Path) -> Future[None]:
            begun.append(self._writer.submit(time.sleep, 0.3))
            return begun[0]

    class Keeps(Seeing):
        def state(self) -> Any:
            return state

    begun: list[Future[None]] = []
    made = consumer(trainer := WritesLong(), Keeps())
    trainer.setup(training_context(tmp_path))
    with pytest.raises(RunError, match=f"estimator 'seeing' failed while returning its state: .*{said}"):
        made.save(made_folder(tmp_path / "saved"))
    assert begun[0].done()


def test_a_backend_that_returns_no_saving_is_named(tmp_path: Path) -> None:
    class ReturnsTheFolder(RecordingTrainer):
        def save_model(self, folder: Path) -> Any:
            return folder

    made = consumer(trainer := ReturnsTheFolder(), Seeing())
    trainer.setup(training_context(tmp_path))
    with pytest.raises(
        RunError, match=r"backend ReturnsTheFolder failed while saving into .*: the returned value is .*a PendingSave or None"
    ):
        made.save(made_folder(tmp_path / "saved"))


def test_whatever_of_a_save_fails_the_rest_is_waited_for(tmp_path: Path) -> None:
    class FailsOnce(RecordingTrainer):
        failing = "model"

        def late(self, name: str) -> Future[None]:
            started.append(self._writer.submit(time.sleep, 0.2))
            failed: Future[None] = Future()
            failed.set_exception(OSError(f"no room for the {name}"))
            return failed if name == self.failing else started[-1]

        def save_model(self, folder: Path) -> Future[None]:
            return self.late("model")

        def save(self, folder: Path) -> Future[None]:
            return self.late("state")

    for failing in ("model", "state"):
        started: list[Future[None]] = []
        made = consumer(trainer := FailsOnce(), Seeing())
        trainer.failing = failing
        trainer.setup(training_context(tmp_path / failing))
        saving = made.save(made_folder(tmp_path / failing / "saved"))
        with pytest.raises(RunError, match=rf"backend FailsOnce failed while saving into .*saved: OSError: no room for the {failing}"):
            saving.result()
        assert started[failing == "model"].done()


def test_every_epoch_deals_the_batch_anew_and_keeps_the_old_log_probabilities() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), updates_per_batch=3, epochs_per_batch=4).update([group(number) for number in range(6)], (), 0)
    assert trainer.asked == [ModelRole.POLICY]
    deals = [tuple(sorted(set(batch.group.tolist())) for batch in trainer.batches[3 * epoch : 3 * epoch + 3]) for epoch in range(4)]
    assert all(sorted(number for share in deal for number in share) == list(range(6)) for deal in deals)
    assert len({str(deal) for deal in deals}) > 1


def test_one_step_an_epoch_has_old_log_probabilities_too() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), epochs_per_batch=2).update([group(0)], (), 0)
    assert trainer.asked == [ModelRole.POLICY]
    assert [batch.old_logprobs is not None for batch in trainer.batches] == [True, True]


def test_old_ones_are_computed_first_where_a_loss_prepares_with_them() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), objective=NoObjective(frozenset({Need.OLD}))).update([group(0)], (), 0)
    assert trainer.asked == [ModelRole.POLICY]
    assert all(batch.old_logprobs is not None for batch in trainer.batches)


def test_a_batch_carries_the_seed_and_the_version_that_key_its_choices() -> None:
    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), seed=7).update([group(0)], (), 3)
    assert [(batch.seed, batch.version) for batch in trainer.batches] == [(7, 3)]


def test_reference_ones_are_asked_for_only_where_declared() -> None:
    trainer = RecordingTrainer()
    needs = NoObjective(frozenset({Need.REFERENCE}))
    consumer(trainer, Seeing(), objective=needs).update([group(0)], (), 0)
    assert trainer.asked == [ModelRole.REFERENCE]
    assert trainer.batches[0].reference_logprobs is not None


def test_a_greedy_rollout_lends_its_reward_and_never_trains() -> None:
    trainer, estimator = RecordingTrainer(), Seeing(needs_greedy=True)
    consumer(trainer, estimator).update([group(0, greedy=True), group(1)], (), 0)
    (seen,) = estimator.seen
    assert seen.greedy is not None
    assert seen.greedy[0] == 2.0
    assert np.isnan(seen.greedy[1])
    assert len(trainer.batches[0]) == 4


def test_an_estimator_that_needs_no_greedy_reward_gets_none() -> None:
    estimator = Seeing()
    consumer(RecordingTrainer(), estimator).update([group(0, greedy=True)], (), 0)
    assert estimator.seen[0].greedy is None


def test_where_nothing_can_train_no_step_is_taken() -> None:
    trainer = RecordingTrainer()
    metrics = consumer(trainer, Seeing()).update([group(0, in_loss=False)], (), 0)
    assert trainer.batches == []
    assert metrics["optimizer_steps"] == 0


def test_masked_groups_stay_in_the_statistics_and_leave_the_loss() -> None:
    trainer, estimator = RecordingTrainer(), Seeing()
    consumer(trainer, estimator).update([group(0), group(1)], {1}, 0)
    assert estimator.seen[0].in_statistics.all()
    assert estimator.seen[0].in_loss.tolist() == [True, True, False, False]
    assert trainer.batches[0].in_loss.tolist() == [True, True, False, False]


def test_what_a_loss_prepares_over_the_whole_batch_reaches_every_step() -> None:
    class Counting(FakeLoss):
        def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
            return {"place": np.arange(batch.offsets[-1])}

    trainer = RecordingTrainer()
    consumer(trainer, Seeing(), loss=Counting(), updates_per_batch=2).update([group(0), group(1)], (), 0)
    places = [place for batch in trainer.batches for place in batch.extras["place"].tolist()]
    assert sorted(places) == list(range(10))


def test_a_prepare_may_be_of_the_class_or_of_the_object() -> None:
    class Choosing(FakeLoss):
        def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
            return {}

    given: Any = FakeLoss()
    given.prepare = lambda batch: {}
    for loss, prepares in ((FakeLoss(), False), (Choosing(), True), (given, True)):
        made = consumer(RecordingTrainer(), Seeing(), loss=loss)
        assert (made.reads_logprobs, made.reads_tokens) == (prepares, prepares)


def test_seconds_are_booked_by_what_the_trainer_does_and_its_own_parts_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = RecordingTrainer()
    now = [0.0]

    def taking(seconds: float, method: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            now[0] += seconds
            return method(*arguments)

        return timed

    parts = iter([{"forward": 100.0}, {"forward": 1.0}, {"forward": 200.0}, {"forward": 2.0, "backward": 0.5}])
    monkeypatch.setattr(trainer, "logprobs", taking(3.0, trainer.logprobs))
    monkeypatch.setattr(trainer, "update", taking(7.0, trainer.update))
    monkeypatch.setattr(trainer, "weight_source", taking(11.0, lambda: HostSource({})))
    monkeypatch.setattr(trainer, "timings", lambda: next(parts))
    made = consumer(trainer, Seeing(), updates_per_batch=2)
    made._account = TimeAccount(lambda: now[0])
    made.update([group(0), group(1)], (), 0)
    made.publish(MemoryPublisher(BUCKET_BYTES), 1, None, 0.1)
    seconds = made._account.report("trainer", Role.TRAINER).seconds
    assert seconds == {"idle": 0.0, "log probabilities": 3.0, "training": 14.0, "weights": 11.0}
    assert made.timings == {"forward": 3.0, "backward": 0.5}  # what passed between two steps belongs to none


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


def test_skipped_steps_are_counted_leave_the_means_alone_and_end_the_run_after_a_budget_in_a_row() -> None:
    """One good step begins the count anew; the budget runs on over updates."""
    trainer = RecordingTrainer()
    made = Consumer(trainer, replace(consumer(trainer, Seeing())._algorithm, updates_per_batch=2), TimeAccount(), max_skipped_steps=2)
    good, bad = {"loss": 1.0, "grad_norm": 2.0}, {"loss": np.nan, "grad_norm": np.inf, "skipped_steps": 1.0}

    def update(*steps: Mapping[str, float]) -> Mapping[str, float]:
        coming = iter(steps)
        trainer.update = lambda batch, objective: next(coming)  # type: ignore[method-assign]
        return made.update([group(0), group(1)], (), 7)

    assert update(good, good).items() >= {**good, "skipped_steps": 0.0, "optimizer_steps": 2.0}.items()
    assert update(bad, good).items() >= {**good, "skipped_steps": 1.0, "optimizer_steps": 1.0}.items()
    nothing = update(bad, bad)
    assert (nothing["skipped_steps"], nothing["optimizer_steps"], "loss" in nothing) == (2.0, 0.0, False)
    said = r"^3 optimizer steps in a row, up to the update of version 7, were skipped .*\(grad_norm inf\).*max_skipped_steps is 2: the"
    with pytest.raises(RunError, match=said):
        update(bad, good)


@pytest.mark.parametrize("value", [np.nan, -np.inf])
@pytest.mark.parametrize("which", [ModelRole.POLICY, ModelRole.REFERENCE])
def test_log_probabilities_that_are_not_finite_are_blamed_on_the_model_that_gave_them(
    which: ModelRole, value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """KL in the reward: they would reach the estimator, and it would be blamed."""
    trainer, estimator = RecordingTrainer(), Seeing()
    usual = trainer.logprobs

    def odd(batch: TrainBatch, asked: ModelRole) -> np.ndarray:
        values = usual(batch, asked)
        if asked is which:
            values[1] = value
        return values

    monkeypatch.setattr(trainer, "logprobs", odd)
    with pytest.raises(
        RunError, match=rf"log probabilities of the {which.value} model are not finite in the update of version 4: .*\(-lr\)"
    ):
        consumer(trainer, estimator, kl_in_reward=0.1).update([group(0)], (), 4)
    assert estimator.seen == []


def test_weights_of_a_kind_that_the_trainer_did_not_declare_are_refused_on_every_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = RecordingTrainer()
    monkeypatch.setattr(trainer, "weight_source", lambda: HostSource({}, WeightsKind.DELTA, {"base": "0"}))
    said = "^the training backend RecordingTrainer publishes weights of kind delta, but declares full; add delta to its capabilities.kinds$"
    for publisher in (MemoryPublisher(BUCKET_BYTES), None):
        with pytest.raises(WeightsError, match=said):
            consumer(trainer, Seeing()).publish(publisher, 1, None, 0.1)
    trainer.capabilities = TrainingCapabilities(kinds=frozenset({"delta"}))  # type: ignore[misc]
    consumer(trainer, Seeing()).publish(None, 1, None, 0.1)
