"""Consumers of several trainer ranks, one a thread, over fake trainers that meet on a socket: together they are one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.errors import RunError
from rlcore.contracts.group_outlines import outline_of
from rlcore.contracts.interfaces import ModelRole, Need, Objective, OptimizerSettings, TrainingContext
from rlcore.contracts.snapshots import BUCKET_BYTES
from rlcore.contracts.types import Group, Score
from rlcore.learning.advantages import GroupNorm
from rlcore.learning.aggregation import TokenLevel
from rlcore.learning.assemble import BatchSettings
from rlcore.roles.algorithm import Algorithm, MixedAlgorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule import TimeAccount
from rlcore.testing import FakeTraining, make_rollout, write_fake_model
from rlcore.testing.algorithms.fake_algorithms import FakeLoss
from rlcore.testing.training.fake_training import FakeTrainingOptions
from rlcore.testing.training.rank_processes import free_rendezvous
from rlcore.testing.weights import HostSource
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver


class NoObjective:
    needs = frozenset({Need.REFERENCE})


ALGORITHM = Algorithm(
    estimator_name="group_norm",
    estimator=GroupNorm(),
    loss_name="fake",
    loss=FakeLoss(),
    objective=NoObjective(),  # type: ignore[arg-type]
    batch=BatchSettings(max_new_tokens=8),
    seed=0,
    updates_per_batch=2,
)


MIXED = MixedAlgorithm(
    ("math", "talk"), (ALGORITHM, replace(ALGORITHM, batch=BatchSettings(max_new_tokens=8, variation=TokenLevel()), kl_in_reward=0.1))
)


class Watching(FakeTraining):
    """Keeps the shares it is asked about."""

    def __init__(self) -> None:
        super().__init__(options=FakeTrainingOptions(ranks_deadline=20.0))
        self.asked: list[tuple[ModelRole, TrainBatch]] = []
        self.updates: list[TrainBatch] = []
        self.calls: list[str] = []

    def logprobs(self, batch: TrainBatch, which: ModelRole) -> np.ndarray:
        self.asked.append((which, batch))
        return super().logprobs(batch, which)

    def logprobs_and_entropies(self, batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
        values = super().logprobs(batch, ModelRole.POLICY)
        return values, -2.0 * values

    def update(self, batch: TrainBatch, objective: Objective) -> Any:
        self.updates.append(batch)
        return super().update(batch, objective)

    def probe(self, token_ids: np.ndarray) -> np.ndarray:
        self.calls.append("probe")
        self.gather(np.zeros(0))  # collective, as in a backend that shards its weights
        return super().probe(token_ids)

    def weight_source(self) -> HostSource:
        calls, gather = self.calls, self.gather

        class Gathered(HostSource):
            def buckets(self, max_bytes: int) -> Any:
                for bucket in super().buckets(max_bytes):
                    calls.append(",".join(bucket))
                    gather(np.zeros(0))
                    yield bucket

        return Gathered(super().weight_source().tensors)


def groups(count: int) -> list[Group]:
    draw = np.random.default_rng(count)
    made = []
    for number in range(count):
        prompt = [1 + number % 5, 3, 4]
        rollouts = tuple(
            make_rollout(prompt, draw.integers(1, 9, 1 + int(draw.integers(6))).tolist(), index=index, prompt_id=f"p{number}")
            for index in range(3)
        )
        scores = tuple(Score(value=float(draw.integers(2)), in_loss=number != 1 or index != 0) for index in range(3))
        made.append(Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=scores))
    return made


def on_ranks(
    folder: Path, size: int, act: Callable[[Consumer, Watching], Any], algorithm: Algorithm | MixedAlgorithm = ALGORITHM
) -> list[Any]:
    """``act`` with each rank's consumer and trainer, at the same time; what it returned, by rank."""
    context = TrainingContext(
        model=str(folder),
        optimizer=OptimizerSettings(learning_rate=0.05, total_steps=50),
        rollouts_per_forward=4,
        tokens_per_forward=999,
        prompts_per_slice=9,
        needs=ALGORITHM.needs,
        world_size=size,
        rendezvous=free_rendezvous(),
    )

    def rank(number: int) -> Any:
        trainer = Watching()
        try:
            trainer.setup(replace(context, rank=number))
            return act(Consumer(trainer, algorithm, TimeAccount(), rank=number), trainer)
        finally:
            trainer.close()

    with ThreadPoolExecutor(size) as pool:
        calls = [pool.submit(rank, number) for number in range(size)]
    if errors := [error for call in calls if (error := call.exception()) is not None]:
        raise BaseExceptionGroup("of the ranks, the cause among them", errors)
    return [call.result() for call in calls]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_fake_model(tmp_path / "model", "abcdefgh")


def train(consumer: Consumer, trainer: Watching) -> tuple[list[Any], dict[str, np.ndarray], Watching]:
    metrics = [consumer.update(groups(count), {2} if count > 2 else (), version) for version, count in enumerate((5, 1, 6, 2))]
    return metrics, {name: np.array(array) for name, array in trainer.policy.arrays().items()}, trainer


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_train_as_one(folder: Path, size: int) -> None:
    ((metrics, weights, _),) = on_ranks(folder, 1, train)
    for found, ended, _ in on_ranks(folder, size, train):
        for mine, theirs in zip(found, metrics, strict=True):
            assert mine == pytest.approx(theirs, rel=1e-5, abs=1e-7)
        for name, array in weights.items():
            np.testing.assert_allclose(ended[name], array, atol=1e-6)


@pytest.mark.parametrize("size", [2, 3])
def test_ranks_train_as_one_on_two_sources_with_the_groups_that_they_need(folder: Path, size: int) -> None:
    """A rank has the outlines of the groups that its planned shares do not need."""
    made = [replace(group, source_index=number % 3 % 2) for number, group in enumerate(groups(7))]

    def act(consumer: Consumer, trainer: Watching) -> Any:
        plan = consumer.plan([outline_of(group) for group in made], {2}, 3)
        logprobs = consumer.reads_logprobs
        own = [group if place in plan.groups else outline_of(group, logprobs=logprobs) for place, group in enumerate(made)]
        metrics = consumer.update(own, {2}, 3, plan.shares)
        return metrics, {name: np.array(array) for name, array in trainer.policy.arrays().items()}, trainer.updates

    ((metrics, weights, (whole, _)),) = on_ranks(folder, 1, act, MIXED)
    assert set(whole.normalisers.sources) == {0, 1}
    assert metrics["tokens"] == metrics["source/math/tokens"] + metrics["source/talk/tokens"]
    for found, ended, updates in on_ranks(folder, size, act, MIXED):
        assert found == pytest.approx(metrics, rel=1e-5, abs=1e-7)
        assert updates[0].normalisers == whole.normalisers
        assert updates[0].source is not None
        assert len(updates[0].source) == len(updates[0])
        for name, array in weights.items():
            np.testing.assert_allclose(ended[name], array, atol=1e-6)


def test_each_rank_computes_its_share_and_sees_the_values_of_all(folder: Path) -> None:
    ((_, _, one),) = on_ranks(folder, 1, train)
    trainers = [trainer for _, _, trainer in on_ranks(folder, 3, train)]
    assert [which for which, _ in one.asked] == [which for which, _ in trainers[0].asked]
    for place, (_, whole) in enumerate(one.asked):
        shares = [trainer.asked[place][1] for trainer in trainers]
        assert sum(len(share) for share in shares) == len(whole)
        assert max(len(share) for share in shares) < len(whole) or len(set(whole.group.tolist())) == 1
    for step, whole in enumerate(one.updates):
        shares = [trainer.updates[step] for trainer in trainers]
        assert all(share.normalisers == whole.normalisers for share in shares)
        for name in ("old_logprobs", "reference_logprobs", "advantages"):
            together = np.sort(np.concatenate([getattr(share, name) for share in shares]))
            np.testing.assert_allclose(together, np.sort(getattr(whole, name)), atol=1e-6)


def test_every_rank_prepares_with_the_entropies_of_the_whole_batch(folder: Path) -> None:
    class Uncertain(FakeLoss):
        prepares_entropy = True

        def prepare(self, batch: TrainBatch) -> dict[str, np.ndarray]:
            assert batch.entropy is not None
            return {"entropy": batch.entropy.copy()}

    def act(consumer: Consumer, trainer: Watching) -> tuple[np.ndarray, np.ndarray]:
        consumer._algorithm = replace(consumer._algorithm, loss=Uncertain())
        consumer.update(groups(5), (), 0)
        return np.concatenate([batch.extras["entropy"] for batch in trainer.updates]), trainer.updates[0].old_logprobs

    ((whole, _),) = on_ranks(folder, 1, act)
    shares = [share for share, _ in on_ranks(folder, 3, act)]
    assert all(len(share) < len(whole) for share in shares)
    np.testing.assert_allclose(np.sort(np.concatenate(shares)), np.sort(whole), atol=1e-6)
    assert len(np.unique(whole)) > 5


def test_all_ranks_take_the_same_steps_where_a_share_is_empty(folder: Path) -> None:
    """One group on two ranks: the second rank has an empty share, and steps with the first."""
    answers = on_ranks(folder, 2, lambda consumer, trainer: (consumer.update(groups(1), (), 0), trainer))
    assert [answer["optimizer_steps"] for answer, _ in answers] == [1.0, 1.0]
    assert [len(trainer.updates[0]) for _, trainer in answers] == [3, 0]
    assert answers[0][0] == answers[1][0]


def test_ranks_without_a_publisher_make_the_same_calls(folder: Path) -> None:
    ids = np.array([3, 5, 4], np.int32)

    def act(consumer: Consumer, trainer: Watching) -> tuple[Any, list[str]]:
        publisher = MemoryPublisher(16) if trainer.data_parallel[0] == 0 else None
        consumer._bucket_bytes = 16
        consumer.publish(publisher, 3, ids, 1e-4)
        receiver = publisher and MemoryReceiver("p", publisher, lambda: None)
        return receiver and receiver.newer_than(2), trainer.calls

    (snapshot, calls), *others = on_ranks(folder, 3, act)
    snapshot.verify()
    assert (snapshot.version, snapshot.probe.token_ids.tolist(), snapshot.probe.tolerance) == (3, ids.tolist(), 1e-4)
    assert calls[0] == "probe"
    assert len(calls) == 1 + len(snapshot.tensors)
    assert others == [(None, calls)] * 2


def test_weights_that_diverged_are_refused_on_every_rank(folder: Path) -> None:
    ids = np.array([3, 5, 4], np.int32)

    def act(consumer: Consumer, trainer: Watching) -> list[str]:
        trainer.policy = type(trainer.policy)(trainer.policy.last * np.nan, trainer.policy.pair)
        with pytest.raises(RunError, match="weights of version 3 give log probabilities that are not finite"):
            consumer.publish(MemoryPublisher(BUCKET_BYTES) if trainer.data_parallel[0] == 0 else None, 3, ids, 1e-4)
        trainer.gather(np.zeros(0))
        return trainer.calls

    assert on_ranks(folder, 2, act) == [["probe"]] * 2


def test_no_rank_returns_from_saving_before_all_is_there(folder: Path, tmp_path: Path) -> None:
    def act(consumer: Consumer, trainer: Watching) -> Sequence[str]:
        consumer.save(tmp_path / "checkpoint")
        return sorted(path.name for path in (tmp_path / "checkpoint").rglob("*.*"))

    (tmp_path / "checkpoint").mkdir()
    assert on_ranks(folder, 2, act) == [["config.json", "consumer.json", "fake_policy.npz", "fake_trainer.npz"]] * 2
