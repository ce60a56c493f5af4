"""What a plugin author tests with: fakes of every interface, conformance suites to subclass, a tester of command lines.

Names are imported on first use, so that a fake loads no torch and a program that is not a test loads no pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.testing.algorithms import FakeEstimator, FakeLoss
    from rlcore.testing.faulty import FaultyInference, FaultyTraining
    from rlcore.testing.inference import FakeInference, FakeInferenceOptions
    from rlcore.testing.judging import FakeReward
    from rlcore.testing.pipeline import FakePipeline
    from rlcore.testing.plugins import PluginFolder
    from rlcore.testing.policy import FakePolicy
    from rlcore.testing.real import ChatTokenizer, Judge, Registry, RewardEntry, load_tokenizer
    from rlcore.testing.recipes import assert_option, recipe_numbers
    from rlcore.testing.records import make_request, make_reward_batch, make_rollout, make_train_batch
    from rlcore.testing.run_tester import RunOutcome, RunTester
    from rlcore.testing.suites.advantage import AdvantageSuite
    from rlcore.testing.suites.inference import InferenceBackendSuite
    from rlcore.testing.suites.loss import LossSuite
    from rlcore.testing.suites.reward import RewardSuite
    from rlcore.testing.suites.training import TrainingBackendSuite
    from rlcore.testing.tokens import FakeTokenizer, load_fake_tokenizer, write_fake_model
    from rlcore.testing.tracking import FakeTracker, FakeTrackerOptions
    from rlcore.testing.training import FakeTraining, FakeTrainingOptions

__all__ = [
    "AdvantageSuite",
    "ChatTokenizer",
    "FakeEstimator",
    "FakeInference",
    "FakeInferenceOptions",
    "FakeLoss",
    "FakePipeline",
    "FakePolicy",
    "FakeReward",
    "FakeTokenizer",
    "FakeTracker",
    "FakeTrackerOptions",
    "FakeTraining",
    "FakeTrainingOptions",
    "FaultyInference",
    "FaultyTraining",
    "InferenceBackendSuite",
    "Judge",
    "LossSuite",
    "PluginFolder",
    "Registry",
    "RewardEntry",
    "RewardSuite",
    "RunOutcome",
    "RunTester",
    "TrainingBackendSuite",
    "assert_option",
    "load_fake_tokenizer",
    "load_tokenizer",
    "make_request",
    "make_reward_batch",
    "make_rollout",
    "make_train_batch",
    "recipe_numbers",
    "write_fake_model",
]

_HOME = {
    "AdvantageSuite": "suites.advantage",
    "ChatTokenizer": "real",
    "FakeEstimator": "algorithms",
    "FakeInference": "inference",
    "FakeInferenceOptions": "inference",
    "FakeLoss": "algorithms",
    "FakePipeline": "pipeline",
    "FakePolicy": "policy",
    "FakeReward": "judging",
    "FakeTokenizer": "tokens",
    "FakeTracker": "tracking",
    "FakeTrackerOptions": "tracking",
    "FakeTraining": "training",
    "FakeTrainingOptions": "training",
    "FaultyInference": "faulty",
    "FaultyTraining": "faulty",
    "InferenceBackendSuite": "suites.inference",
    "Judge": "real",
    "LossSuite": "suites.loss",
    "PluginFolder": "plugins",
    "Registry": "real",
    "RewardEntry": "real",
    "RewardSuite": "suites.reward",
    "RunOutcome": "run_tester",
    "RunTester": "run_tester",
    "TrainingBackendSuite": "suites.training",
    "assert_option": "recipes",
    "load_fake_tokenizer": "tokens",
    "load_tokenizer": "real",
    "make_request": "records",
    "make_reward_batch": "records",
    "make_rollout": "records",
    "make_train_batch": "records",
    "recipe_numbers": "recipes",
    "write_fake_model": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
