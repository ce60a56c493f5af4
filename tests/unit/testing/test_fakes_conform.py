"""The fakes pass the suites that plugins are held to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from suites_of_fakes import CHARACTERS, FakeEngineSuite, FakeEstimatorSuite, FakeLossSuite, FakeRewardSuite, FakeTrainerSuite
from zoo_ranks import HandsOutOnRankZero
from zoo_updates import WritesInPlace

from rlcore.contracts.interfaces import InferenceBackend, InferenceContext, TrainingBackend, TrainingContext
from rlcore.contracts.sampler import SamplerContext
from rlcore.contracts.specs import InFlight
from rlcore.contracts.types import RewardInput
from rlcore.testing import (
    AdvantageSuite,
    AggregationSuite,
    ControllerSuite,
    CorrectionSuite,
    FakeInference,
    FakeTokenizer,
    GroupFilterSuite,
    InferenceBackendSuite,
    KlSuite,
    LearningRateScheduleSuite,
    LossSuite,
    ModelHookSuite,
    OptimizerSuite,
    RewardSuite,
    SamplerSuite,
    TrainingBackendSuite,
    fake_plugin,
    make_reward_batch,
    update_engine,
    write_fake_model,
)
from rlcore.testing.algorithms.fake_algorithms import (
    FakeAggregation,
    FakeBaseline,
    FakeCorrection,
    FakeCredit,
    FakeGroupFilter,
    FakeKl,
    FakeLearningRateSchedule,
)
from rlcore.testing.algorithms.fake_optimizer import FakeOptimizer
from rlcore.testing.control.fake_controller import FakeController
from rlcore.testing.inference.fake_tensor_parallel import FakeTensorParallel
from rlcore.testing.rewards.fake_reward import FakeRewardOptions, FakeTokenReward
from rlcore.testing.sampling.fake_sampler import FakeSampler
from rlcore.testing.training.fake_model_hook import FakeModelHook
from rlcore.testing.training.fake_pipeline import FakePipeline
from rlcore.testing.training.plain_objective import PlainObjective
from rlcore.testing.weights import snapshot_of


class TestFakeReward(FakeRewardSuite):
    pass


class TestFakeEstimator(FakeEstimatorSuite):
    pass


class TestFakeBaseline(AdvantageSuite):
    shift_invariant = False

    def make(self) -> FakeBaseline:
        return FakeBaseline()

    def test_better_reward_is_not_worse(self) -> None:
        """A prompt's first batch has no baseline: the rule is asked of the second."""
        self._first = FakeBaseline()
        self._first.estimate(self._still(make_reward_batch([0.0], [0])))
        values = self._first.estimate(self._still(make_reward_batch([0.0, 0.5, 1.0, 0.25], [0, 0, 0, 0])))
        assert values.tolist() == [0.0, 0.5, 1.0, 0.25]


class TestFakeCredit(AdvantageSuite):
    def make(self) -> FakeCredit:
        return FakeCredit()


class TestFakeTokenReward(FakeRewardSuite):
    spec = next(spec for spec in fake_plugin.rlcore_register_rewards() if spec.name == "fake_tokens")

    def make(self) -> FakeTokenReward:
        return FakeTokenReward(FakeRewardOptions())

    def honest(self) -> RewardInput:
        return replace(super().honest(), token_ids=np.arange(3, dtype=np.int32))

    def wrong(self) -> RewardInput:
        return replace(super().wrong(), token_ids=np.arange(3, dtype=np.int32))


class TestFakeAggregation(AggregationSuite):
    def make(self) -> FakeAggregation:
        return FakeAggregation()


class TestFakeKl(KlSuite):
    gradient = ""

    def make(self) -> FakeKl:
        return FakeKl()


class TestFakeCorrection(CorrectionSuite):
    def make(self, bounds: tuple[float, float]) -> FakeCorrection:
        return FakeCorrection(bounds)


class TestFakeController(ControllerSuite):
    def make(self) -> FakeController:
        return FakeController()


class TestFakeSampler(SamplerSuite):
    def make(self, context: SamplerContext) -> FakeSampler:
        return FakeSampler(context)


class TestFakeSamplerWithoutEnd(TestFakeSampler):
    def context(self) -> SamplerContext:
        return SamplerContext(items=None)


class TestFakeLearningRateSchedule(LearningRateScheduleSuite):
    def make(self) -> FakeLearningRateSchedule:
        return FakeLearningRateSchedule()


class TestFakeModelHook(ModelHookSuite):
    def make(self) -> FakeModelHook:
        return FakeModelHook()


class TestFakeGroupFilter(GroupFilterSuite):
    def make(self) -> FakeGroupFilter:
        return FakeGroupFilter()


class TestFakeOptimizer(OptimizerSuite):
    def make(self) -> FakeOptimizer:
        return FakeOptimizer()


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


class TestContinuingEngine(FakeEngineSuite):
    in_flight = InFlight.ABORT
    continues = True
    tells = True


@pytest.mark.full
class TestTensorParallelEngine(FakeEngineSuite):
    spec = next(spec for spec in fake_plugin.rlcore_register_inference_backends() if spec.name == "fake-tensor")
    engine = FakeTensorParallel
    swaps = False

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=self.folder,
            tokenizer=FakeTokenizer(CHARACTERS),
            prompts_per_forward=prompts_per_forward,
            max_tokens=self.max_tokens,
            tensor_parallel=2,
        )
        return FakeTensorParallel(context)


class TestAdamTrainer(FakeTrainerSuite):
    optimizer = "adam"


class TestPipelineTrainer(FakeTrainerSuite):
    rank_counts = (1,)  # its stages are in one process

    def objective(self) -> PlainObjective:
        return PlainObjective()

    spec = next(spec for spec in fake_plugin.rlcore_register_training_backends() if spec.name == "fake-pipeline")

    def make(self, context: TrainingContext) -> TrainingBackend:
        return FakePipeline(context)


class TestSgdTrainer(FakeTrainerSuite):
    optimizer = "sgd"
    adamw = False
    learning_rate = 0.1


@pytest.mark.full
def test_ranks_above_0_need_not_hand_out_weights() -> None:
    suite = type("Suite", (FakeTrainerSuite,), {"trainer": HandsOutOnRankZero})()
    for rule in (name for name in dir(suite) if name.startswith("test_layouts_")):
        getattr(suite, rule)()


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
