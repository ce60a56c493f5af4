"""The fakes pass the suites that plugins are held to."""

from __future__ import annotations

import shutil
import weakref
from functools import cached_property
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest

from rlcore.interfaces import InferenceBackend, InferenceContext, InFlight, TrainingBackend, TrainingContext
from rlcore.snapshots import Snapshot
from rlcore.testing import (
    AdvantageSuite,
    FakeEstimator,
    FakeInference,
    FakeInferenceOptions,
    FakeLoss,
    FakePipeline,
    FakePolicy,
    FakeReward,
    FakeTokenizer,
    FakeTraining,
    FakeTrainingOptions,
    InferenceBackendSuite,
    LossSuite,
    RewardSuite,
    TrainingBackendSuite,
    write_fake_model,
)
from rlcore.testing.judging import FakeRewardOptions
from rlcore.types import Message, RewardInput

CHARACTERS = "abcdefgh"


class TestFakeReward(RewardSuite):
    options = FakeRewardOptions(correct=2.0)

    def make(self) -> FakeReward:
        return FakeReward(self.options)

    def honest(self) -> RewardInput:
        return RewardInput(messages=(Message(role="user", content="say cab"),), columns={"gt_answer": "cab", "other": [1]}, text=" cab ")

    def wrong(self) -> RewardInput:
        return RewardInput(messages=(Message(role="user", content="say cab"),), columns={"gt_answer": "cab", "other": [1]}, text="abc")


class TestFakeEstimator(AdvantageSuite):
    def make(self) -> FakeEstimator:
        return FakeEstimator()


class TestFakeLoss(LossSuite):
    def make(self) -> FakeLoss:
        return FakeLoss()


class FakeEngineSuite(InferenceBackendSuite):
    stop_ids = frozenset({0})
    vocabulary = len(FakeTokenizer(CHARACTERS))
    tolerance = 1e-6
    in_flight = InFlight.FINISH

    @cached_property
    def folder(self) -> str:
        folder = Path(mkdtemp(prefix="rlcore-test-"))
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        return str(write_fake_model(folder, CHARACTERS, seed=0, scale=0.5))

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=self.folder, tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=prompts_per_forward, max_tokens=64
        )
        return FakeInference(context, FakeInferenceOptions(in_flight=self.in_flight))

    def snapshot(self, version: int) -> Snapshot:
        return Snapshot.of(version, dict(FakePolicy.random(self.vocabulary, version, 0.5).tensors()))

    def prompts(self) -> list[list[int]]:
        return [[3, 5, 4], [3, 6, 6, 4], [3, 9, 4]]

    def decode(self, token_ids: list[int]) -> str:
        return FakeTokenizer(CHARACTERS).decode(token_ids)


class TestFinishingEngine(FakeEngineSuite):
    in_flight = InFlight.FINISH


class TestResumingEngine(FakeEngineSuite):
    in_flight = InFlight.RESUME


class TestAbortingEngine(FakeEngineSuite):
    in_flight = InFlight.ABORT


class FakeTrainerSuite(TrainingBackendSuite):
    vocabulary = len(FakeTokenizer(CHARACTERS))
    tolerance = 1e-5
    optimizer = "adam"

    def make(self, context: TrainingContext) -> TrainingBackend:
        return FakeTraining(context, FakeTrainingOptions(optimizer=self.optimizer))

    def model(self) -> str:
        folder = self.scratch / "start"
        return str(folder if folder.is_dir() else write_fake_model(folder, CHARACTERS))


class TestAdamTrainer(FakeTrainerSuite):
    optimizer = "adam"


class TestPipelineTrainer(FakeTrainerSuite):
    def make(self, context: TrainingContext) -> TrainingBackend:
        return FakePipeline(context)


class TestSgdTrainer(FakeTrainerSuite):
    optimizer = "sgd"
    learning_rate = 0.1


def test_score_of_the_engine_equals_the_probe_of_the_trainer(tmp_path: Path) -> None:
    model = str(write_fake_model(tmp_path, CHARACTERS))
    engine = FakeInference(InferenceContext(model=model, tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=1, max_tokens=9))
    suite = TestAdamTrainer()
    trainer = suite.ready(model=model)
    trainer.update(suite.batch(), suite.objective())
    engine.update(Snapshot.of(1, dict(trainer.iter_weights())))
    sequence = np.array([3, 5, 6, 7, 4])
    assert np.array_equal(engine.score(sequence), trainer.probe(sequence))


@pytest.mark.parametrize("suite", [RewardSuite, AdvantageSuite, LossSuite, InferenceBackendSuite, TrainingBackendSuite])
def test_every_rule_of_a_suite_says_what_it_checks(suite: type) -> None:
    rules = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert len(rules) >= 9
    assert all(rule.__doc__ for rule in rules)
