"""Two stages give the gradient of one, whatever the cut, and run through the same consumer as any backend."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from suites_of_fakes import FakeTrainerSuite

from rlcore.contracts.batches import LossBatch, TrainBatch
from rlcore.contracts.interfaces import Need, OptimizerSettings, TrainingContext
from rlcore.contracts.snapshots import BUCKET_BYTES
from rlcore.contracts.types import Group, Outcome, Score
from rlcore.learning import BatchSettings, PolicyObjective
from rlcore.roles.algorithm import Algorithm
from rlcore.roles.consumer import Consumer
from rlcore.schedule.accounting import TimeAccount
from rlcore.testing import FakeTraining, write_fake_model
from rlcore.testing.algorithms.fake_algorithms import FakeEstimator, FakeLoss
from rlcore.testing.policy import log_softmax
from rlcore.testing.records import make_rollout
from rlcore.testing.training.fake_pipeline import FakePipeline, one_forward_one_backward
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.weights import weights_of
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver


def set_up(backend: FakePipeline | FakeTraining, folder: Path, **changes: object) -> None:
    optimizer = OptimizerSettings(learning_rate=0.1, weight_decay=0.0, max_grad_norm=1e9)
    context = TrainingContext(
        model=str(folder), optimizer=optimizer, rollouts_per_forward=64, tokens_per_forward=9999, prompts_per_slice=9, dtype="float64"
    )
    backend.setup(replace(context, **changes))  # type: ignore[arg-type]


def batch_of_suite(temperature: float | list[float] = 1.0) -> TrainBatch:
    suite = FakeTrainerSuite.__new__(type("Suite", (FakeTrainerSuite,), {}))
    batch = suite.batch(temperature)
    off = np.random.default_rng(3).normal(0, 0.2, len(batch.advantages)).astype(np.float32)
    return replace(batch, old_logprobs=-2.5 + off)


def unsplit_gradient(backend: FakePipeline, batch: TrainBatch) -> list[torch.Tensor]:
    """One graph over both tables, log softmax in full, no rlcore.learning: an independent derivation."""
    last, pair = (parameter.detach().clone().requires_grad_() for parameter in backend.parameters)
    vocabulary = last.shape[0]
    loss = torch.zeros((), dtype=torch.float64)
    for row in np.flatnonzero(batch.in_loss):
        (segment,) = batch.rollouts[row].segments
        ids = torch.tensor(np.concatenate([segment.context_ids, segment.token_ids]), dtype=torch.int64)
        before = torch.cat([torch.tensor([vocabulary]), ids[:-1]])
        logits = (last[ids] + pair[before * vocabulary + ids]) / batch.rollouts[row].temperature
        logprobs = torch.log_softmax(logits[:-1], -1).gather(1, ids[1:, None]).squeeze(1)[len(segment.context_ids) - 1 :]
        span = slice(batch.offsets[row], batch.offsets[row + 1])
        assert batch.old_logprobs is not None
        ratio = (logprobs[torch.tensor(segment.policy_mask)] - torch.tensor(batch.old_logprobs[span], dtype=torch.float64)).exp()
        loss = loss - (torch.tensor(batch.weights[span] * batch.advantages[span], dtype=torch.float64) * ratio).sum()
    loss.backward()
    return [last.grad, pair.grad]  # type: ignore[list-item]


@pytest.mark.parametrize("rollouts", [1, 2, 64])
@pytest.mark.parametrize("temperature", [1.0, 0.6, [0.6, 1.4, 0.6, 1.0, 1.4, 0.8]], ids=["1", "0.6", "mixed"])
def test_the_gradient_is_that_of_the_unsplit_model(tmp_path: Path, rollouts: int, temperature: float | list[float]) -> None:
    backend, batch = FakePipeline(), batch_of_suite(temperature)
    set_up(backend, write_fake_model(tmp_path, "abcdefgh"), rollouts_per_forward=rollouts)
    expected = unsplit_gradient(backend, batch)
    backend.update(batch, PlainObjective())
    for parameter, gradient in zip(backend.parameters, expected, strict=True):
        # float32 products of weights and advantages differ in their last bit between the two.
        torch.testing.assert_close(parameter.grad, gradient, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("temperature", [1.0, [0.6, 1.4, 0.6, 1.0, 1.4, 0.8]], ids=["1", "mixed"])
def test_a_step_equals_the_fake_trainers(tmp_path: Path, temperature: float | list[float]) -> None:
    """The numpy trainer derives the same gradient by hand."""
    pipeline, plain, batch = FakePipeline(), FakeTraining(), batch_of_suite(temperature)
    for backend in (pipeline, plain):
        set_up(backend, write_fake_model(tmp_path, "abcdefgh"))
    ours, theirs = pipeline.update(batch, PlainObjective()), plain.update(batch, PlainObjective())
    assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-6)
    ours_after, theirs_after = weights_of(pipeline), weights_of(plain)
    assert list(ours_after) == list(theirs_after)
    for name, one in ours_after.items():
        np.testing.assert_allclose(one.data, theirs_after[name].data, atol=1e-5, err_msg=name)


def test_the_schedule_keeps_two_in_flight() -> None:
    assert list(one_forward_one_backward(3)) == [
        ("forward", 0),
        ("forward", 1),
        ("backward", 0),
        ("forward", 2),
        ("backward", 1),
        ("backward", 2),
    ]
    assert list(one_forward_one_backward(0)) == []


def test_two_micro_batches_at_most_are_between_forward_and_backward(tmp_path: Path) -> None:
    backend = FakePipeline()
    set_up(backend, write_fake_model(tmp_path, "abcdefgh"), rollouts_per_forward=1)
    backend.update(batch_of_suite(), PlainObjective())
    assert backend.most_in_flight == 2


def test_the_objective_meets_the_last_stage_only(tmp_path: Path) -> None:
    """Once a micro-batch, on log probabilities whose graph ends at the boundary: stage 0 is not in it."""
    backend = FakePipeline()
    set_up(backend, write_fake_model(tmp_path, "abcdefgh"), rollouts_per_forward=2)
    calls = []

    class Watching(PlainObjective):
        def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
            reached = torch.autograd.grad(logprobs.sum(), backend.stages[0].last, retain_graph=True, allow_unused=True)
            calls.append(reached[0] is None)
            return super().__call__(logprobs, batch)

    batch = batch_of_suite()
    backend.update(batch, Watching())
    assert calls == [True] * len(calls)
    assert len(calls) >= 3


def test_entropy_reaches_both_stages(tmp_path: Path) -> None:
    """An objective of entropy alone moves the model towards uniform."""
    backend = FakePipeline()
    set_up(backend, write_fake_model(tmp_path, "abcdefgh", scale=2.0))
    objective = PolicyObjective(loss=FakeLoss(), entropy_coeff=1.0)
    assert objective.needs == {Need.ENTROPY}
    batch = replace(batch_of_suite(), advantages=np.zeros(len(batch_of_suite().advantages), np.float32))
    ids = np.concatenate([batch.rollouts[0].segments[0].context_ids, batch.rollouts[0].segments[0].token_ids])

    def entropy() -> float:
        rows = log_softmax(backend.policy.logits(ids))
        return float(-(np.exp(rows) * rows).sum(-1)[len(ids) - 4 :].mean())

    before = entropy()
    backend.update(batch, objective)
    assert entropy() > before


def test_it_runs_through_the_consumer(tmp_path: Path) -> None:
    """The consumer that trains every backend trains this one: the good rollout becomes more likely than the bad one."""
    backend, loss = FakePipeline(), FakeLoss()
    algorithm = Algorithm(
        estimator_name="fake",
        estimator=FakeEstimator(),
        loss_name="fake",
        loss=loss,
        objective=PolicyObjective(loss=loss, kl_coeff=0.01),
        batch=BatchSettings(max_new_tokens=4),
        seed=0,
        updates_per_batch=2,
    )
    set_up(backend, write_fake_model(tmp_path, "abcdefgh"), needs=algorithm.needs, rollouts_per_forward=1)
    groups = [group(number) for number in range(3)]
    consumer = Consumer(backend, algorithm, TimeAccount())
    for version in range(4):
        metrics = consumer.update(groups, (), version)
        assert metrics["optimizer_steps"] == 2
        assert metrics["grad_norm"] > 0
    good, bad = (backend.probe(np.array([3, 5, 4, *tokens]))[2:].sum() for tokens in ([6, 0], [7, 0]))
    assert good > bad + 0.5
    publisher = MemoryPublisher(BUCKET_BYTES)
    consumer.publish(publisher, 4, np.array([3, 5, 4, 6, 0]), 1e-4)
    snapshot = MemoryReceiver("p0", publisher, lambda: None).newer_than(3)
    assert snapshot is not None
    assert snapshot.probe is not None


def group(number: int) -> Group:
    rollouts = tuple(make_rollout([3, 5, 4], tokens, index=n, prompt_id=f"p{number}") for n, tokens in enumerate(([6, 0], [7, 0])))
    scores = (Score(value=1.0, accuracy=1.0), Score(value=0.0, accuracy=0.0, outcome=Outcome.WRONG))
    return Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=scores)
