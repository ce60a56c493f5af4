"""The fakes pass the suites that plugins are held to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from suites_of_fakes import CHARACTERS, FakeEngineSuite, FakeEstimatorSuite, FakeLossSuite, FakeRewardSuite, FakeTrainerSuite
from zoo_backends import HandsOutOnRankZero
from zoo_updates import WritesInPlace

from rlcore.contracts.interfaces import InferenceBackend, InferenceContext, TrainingBackend, TrainingContext
from rlcore.contracts.specs import InFlight
from rlcore.testing import (
    AdvantageSuite,
    FakeInference,
    FakePipeline,
    FakeTokenizer,
    InferenceBackendSuite,
    LossSuite,
    RewardSuite,
    TrainingBackendSuite,
    fake_plugin,
    update_engine,
    write_fake_model,
)
from rlcore.testing.tensor_parallel import FakeTensorParallel
from rlcore.testing.weights import snapshot_of


class TestFakeReward(FakeRewardSuite):
    pass


class TestFakeEstimator(FakeEstimatorSuite):
    pass


class TestFakeLoss(FakeLossSuite):
    pass


class TestFinishingEngine(FakeEngineSuite):
    in_flight = InFlight.FINISH


class TestResumingEngine(FakeEngineSuite):
    in_flight = InFlight.RESUME


class TestAbortingEngine(FakeEngineSuite):
    in_flight = InFlight.ABORT


class TestEngineThatWritesInPlace(FakeEngineSuite):
    engine = WritesInPlace
    swaps = False


@pytest.mark.full
class TestTensorParallelEngine(FakeEngineSuite):
    spec = next(spec for spec in fake_plugin.rlcore_register_inference_backends() if spec.name == "fake-tensor")
    engine = FakeTensorParallel
    swaps = False

    def setup_method(self) -> None:
        self.made: list[FakeTensorParallel] = []

    def teardown_method(self) -> None:
        for engine in self.made:
            engine.close()

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=self.folder,
            tokenizer=FakeTokenizer(CHARACTERS),
            prompts_per_forward=prompts_per_forward,
            max_tokens=64,
            tensor_parallel=2,
        )
        self.made.append(FakeTensorParallel(context))
        return self.made[-1]


class TestAdamTrainer(FakeTrainerSuite):
    optimizer = "adam"


class TestPipelineTrainer(FakeTrainerSuite):
    spec = next(spec for spec in fake_plugin.rlcore_register_training_backends() if spec.name == "fake-pipeline")

    def make(self, context: TrainingContext) -> TrainingBackend:
        return FakePipeline(context)


class TestSgdTrainer(FakeTrainerSuite):
    optimizer = "sgd"
    learning_rate = 0.1


@pytest.mark.full
def test_ranks_above_0_need_not_hand_out_weights() -> None:
    type("Suite", (FakeTrainerSuite,), {"trainer": HandsOutOnRankZero})().test_two_ranks_are_one()


def test_score_of_the_engine_equals_the_probe_of_the_trainer(tmp_path: Path) -> None:
    model = str(write_fake_model(tmp_path, CHARACTERS))
    engine = FakeInference(InferenceContext(model=model, tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=1, max_tokens=9))
    suite = TestAdamTrainer()
    trainer = suite.ready(model=model)
    trainer.update(suite.batch(), suite.objective())
    update_engine(engine, snapshot_of(1, trainer))
    sequence = np.array([3, 5, 6, 7, 4])
    assert np.array_equal(engine.score(sequence), trainer.probe(sequence))


@pytest.mark.parametrize("suite", [RewardSuite, AdvantageSuite, LossSuite, InferenceBackendSuite, TrainingBackendSuite])
def test_every_rule_of_a_suite_says_what_it_checks(suite: type) -> None:
    rules = [getattr(suite, name) for name in dir(suite) if name.startswith("test_")]
    assert len(rules) >= 9
    assert all(rule.__doc__ for rule in rules)
