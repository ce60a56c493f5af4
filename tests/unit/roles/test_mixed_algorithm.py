"""The algorithms of several sources in one consumer: what each estimator and loss sees, and what is kept of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.batches import RewardBatch, TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import ModelRole, Need
from rlcore.contracts.types import Group
from rlcore.learning.assemble import BatchSettings
from rlcore.roles.algorithm import Algorithm, MixedAlgorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule import TimeAccount
from rlcore.testing.algorithms.fake_algorithms import FakeBaseline, FakeLoss
from tests.unit.roles.test_consumer import NoObjective, RecordingTrainer, Seeing, group, made_folder, training_context

NAMES = ("math", "talk")


@dataclass
class SeeingLoss(FakeLoss):
    """Keeps the batches that it prepares and the figures that it observes."""

    prepared: list[TrainBatch] = field(default_factory=list)
    observed: list[Mapping[str, float]] = field(default_factory=list)
    name: str = "place"

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        self.prepared.append(batch)
        return {self.name: np.arange(1, len(batch.advantages) + 1)}

    def updated(self, figures: Mapping[str, float]) -> None:
        self.observed.append(dict(figures))

    def state(self) -> Mapping[str, np.ndarray | float]:
        return {"updates": float(len(self.observed))}

    def restore(self, state: Mapping[str, np.ndarray]) -> None:
        self.observed = [{}] * int(state["updates"])


def one(**changes: Any) -> Algorithm:
    made = Algorithm(
        estimator_name="seeing",
        estimator=Seeing(),
        loss_name="fake",
        loss=SeeingLoss(),
        objective=NoObjective(),
        batch=BatchSettings(max_new_tokens=8),
        seed=0,
    )
    return replace(made, **changes)


def mixed(first: Mapping[str, Any] | None = None, second: Mapping[str, Any] | None = None) -> MixedAlgorithm:
    return MixedAlgorithm(NAMES, (one(**(first or {})), one(**(second or {}))))


def of_source(number: int, source: int, **changes: Any) -> Group:
    return replace(group(number, **changes), source_index=source)


GROUPS = [of_source(0, 1), of_source(1, 0), of_source(2, 1), of_source(3, 1)]


def updated(algorithm: MixedAlgorithm, groups: list[Group] = GROUPS, masked: tuple[int, ...] = ()) -> tuple[RecordingTrainer, Any]:
    trainer = RecordingTrainer()
    return trainer, Consumer(trainer, algorithm, TimeAccount()).update(groups, masked, 3)


def test_each_estimator_sees_the_groups_of_its_source() -> None:
    algorithm = mixed()
    trainer, _ = updated(algorithm, masked=(2,))
    seen: list[RewardBatch] = [each.estimator.seen[0] for each in algorithm.algorithms]  # type: ignore[attr-defined]
    assert [batch.rewards.tolist() for batch in seen] == [[10.0, 11.0], [0.0, 1.0, 20.0, 21.0, 30.0, 31.0]]
    assert [batch.group.tolist() for batch in seen] == [[0, 0], [0, 0, 1, 1, 2, 2]]
    assert [batch.in_loss.tolist() for batch in seen] == [[True] * 2, [True, True, False, False, True, True]]
    (batch,) = trainer.batches
    assert batch.source is not None
    assert batch.group.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert batch.source.tolist() == [1, 1, 0, 0, 1, 1, 1, 1]
    due = np.array([0.0, 1.0, 10.0, 11.0, 20.0, 21.0, 30.0, 31.0]) - np.repeat([103 / 6, 10.5, 103 / 6, 103 / 6], 2)
    assert np.allclose(batch.advantages[batch.offsets[:-1]], due)


def test_each_loss_prepares_the_batch_of_its_source_as_if_there_were_no_other() -> None:
    """The same arrays, weights and normalisers as in an update on the groups of the source alone."""
    algorithm, alone = mixed(), one()
    trainer, _ = updated(algorithm, masked=(2,))
    Consumer(RecordingTrainer(), alone, TimeAccount()).update([GROUPS[0], *GROUPS[2:]], (1,), 3)
    (mine,), (theirs,) = algorithm.algorithms[1].loss.prepared, alone.loss.prepared  # type: ignore[attr-defined]
    for name in ("group", "in_loss", "offsets", "advantages", "rollout_logprobs", "weights"):
        assert np.array_equal(getattr(mine, name), getattr(theirs, name)), name
    assert (mine.normalisers, mine.source, mine.rollouts) == (theirs.normalisers, None, theirs.rollouts)
    (batch,) = trainer.batches
    assert sorted(batch.extras) == ["0/place", "1/place"]
    assert batch.source is not None
    own = np.repeat(batch.source == 1, batch.lengths)
    assert batch.extras["1/place"].tolist() == np.where(own, np.cumsum(own), 0).tolist()


def test_a_source_without_groups_in_an_update_is_left_out() -> None:
    algorithm = mixed()
    _, metrics = updated(algorithm, GROUPS[:1])
    assert [len(each.estimator.seen) for each in algorithm.algorithms] == [0, 1]  # type: ignore[attr-defined]
    assert metrics["source/math/tokens"] == 0.0
    assert metrics["source/talk/tokens"] == metrics["tokens"] == 5.0


def test_a_loss_observes_its_own_figures_and_those_of_the_optimizer() -> None:
    algorithm = mixed()
    trainer = RecordingTrainer({"loss": 1.0, "grad_norm": 2.0, "kl_old": 0.5, "source/talk/loss": 3.0, "source/talk/kl_old": 0.7})
    metrics = Consumer(trainer, algorithm, TimeAccount()).update(GROUPS, (), 3)
    assert metrics["loss"] == 1.0
    math, talk = (each.loss.observed[0] for each in algorithm.algorithms)  # type: ignore[attr-defined]
    assert (talk["loss"], talk["kl_old"], talk["grad_norm"], talk["tokens"]) == (3.0, 0.7, 2.0, 15.0)
    assert (math["grad_norm"], math["tokens"], math["optimizer_steps"]) == (2.0, 5.0, 1.0)
    assert not {"loss", "kl_old"} & set(math), "the step's figures are those of another source"
    assert not [name for name in [*math, *talk] if name.startswith("source/")]


@pytest.mark.parametrize("which", [0, 1])
def test_what_one_source_needs_is_computed_for_the_batch(which: int) -> None:
    def with_one(**changes: Any) -> MixedAlgorithm:
        return mixed(*({}, changes) if which else (changes, {}))

    trainer, _ = updated(with_one(kl_in_reward=0.5))
    assert trainer.asked == [ModelRole.REFERENCE, ModelRole.POLICY]
    algorithm = with_one(kl_in_reward=0.5)
    updated(algorithm)
    seen = [each.estimator.seen[0].kl for each in algorithm.algorithms]  # type: ignore[attr-defined]
    assert [kl is not None for kl in seen] == [number == which for number in (0, 1)]
    assert (seen[which] == 0.5).all()  # type: ignore[union-attr]
    assert with_one(whole_rollouts=True).whole_rollouts
    assert not mixed().whole_rollouts
    assert with_one(objective=NoObjective(frozenset({Need.REFERENCE}))).needs == {Need.REFERENCE}
    assert mixed().needs == frozenset()


@pytest.mark.parametrize("which", [0, 1])
def test_what_one_source_reads_of_the_whole_batch_is_read(which: int) -> None:
    class Plain(FakeLoss):
        pass

    class Uncertain(SeeingLoss):
        prepares_entropy = True

    def with_one(loss: FakeLoss) -> MixedAlgorithm:
        changes: list[dict[str, Any]] = [{"loss": Plain()}, {"loss": Plain()}]
        changes[which] = {"loss": loss}
        return mixed(*changes)

    plain, seeing, uncertain = (with_one(loss) for loss in (Plain(), SeeingLoss(), Uncertain()))
    assert (plain.reads_logprobs, plain.reads_tokens, plain.prepares_entropy) == (False, False, False)
    assert (seeing.reads_logprobs, seeing.reads_tokens, seeing.prepares_entropy) == (True, True, False)
    assert uncertain.prepares_entropy


def test_segments_keep_the_source_of_their_rollout() -> None:
    whole = of_source(0, 1)
    several = replace(whole, rollouts=tuple(replace(each, segments=each.segments * (1 + each.index)) for each in whole.rollouts))
    trainer, _ = updated(mixed(), [several, of_source(1, 0)])
    (batch,) = trainer.batches
    assert batch.source is not None
    assert batch.source.tolist() == [1, 1, 1, 0, 0]


def test_an_error_of_an_estimator_or_a_loss_names_the_source() -> None:
    class Broken(Seeing):
        def estimate(self, batch: RewardBatch) -> np.ndarray:
            return np.array([np.nan])

    class Strange(FakeLoss):
        def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
            return {"x": np.zeros(3)}

    with pytest.raises(RunError, match=r"^source 'talk': estimator 'seeing' declares per = \"rollout\" and returned shape"):
        updated(mixed({}, {"estimator": Broken()}))
    with pytest.raises(RunError, match=r"^source 'math': loss 'fake': prepare returned 'x' of shape"):
        updated(mixed({"loss": Strange()}))


def test_a_checkpoint_holds_the_states_of_every_source(tmp_path: Path) -> None:
    algorithm = mixed({"estimator": FakeBaseline()}, {"estimator": FakeBaseline()})
    trainer = RecordingTrainer()
    trainer.setup(training_context(tmp_path))
    consumer = Consumer(trainer, algorithm, TimeAccount())
    consumer.update(GROUPS, (), 3)
    consumer.update(GROUPS[:1], (), 4)
    folder = made_folder(tmp_path / "saved")
    consumer.save(folder).result()
    assert {path.name for path in (folder / "trainer").glob("*.npz")} >= {
        f"{part}-{n}.npz" for part in ("estimator", "loss") for n in (0, 1)
    }
    resumed = mixed({"estimator": FakeBaseline()}, {"estimator": FakeBaseline()})
    other = Consumer(trainer, resumed, TimeAccount())
    other.load(folder)
    states = [[repr(part.state()) for _, part, _ in each.parts_with_state()] for each in (algorithm, resumed)]
    assert states[0] == states[1]
    assert states[0][0] != states[0][2], "the sources have states of their own"
    assert other.notes == []


def test_a_controller_changes_the_algorithms_of_the_sources() -> None:
    trainer, algorithm = RecordingTrainer(), mixed()

    def retuned(old: MixedAlgorithm, settings: Mapping[str, Any]) -> MixedAlgorithm:
        return replace(old, algorithms=tuple(replace(each, kl_in_reward=settings["algorithm.kl_coeff"]) for each in old.algorithms))

    consumer = Consumer(trainer, algorithm, TimeAccount(), retuned=retuned)
    consumer.update(GROUPS, (), 3)
    consumer.control({"algorithm.kl_coeff": 0.5})
    consumer.update(GROUPS, (), 4)
    assert trainer.asked == [ModelRole.REFERENCE, ModelRole.POLICY]
    assert all(each.estimator.seen[1].kl_coeff == 0.5 for each in algorithm.algorithms)  # type: ignore[attr-defined]
