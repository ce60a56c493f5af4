"""What a plugin author tests with: fakes of every interface, conformance suites to subclass, a tester of command lines.

Names are imported on first use, so that a fake loads no torch and a program that is not a test loads no pytest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.testing.algorithms import FakeAggregation, FakeBaseline, FakeCorrection, FakeCredit, FakeEstimator, FakeKl, FakeLoss
    from rlcore.testing.command_check import check_command
    from rlcore.testing.fake_conversation import FakeConversation, FakeConversationOptions, FaultyConversation
    from rlcore.testing.fake_inference import FakeInference, FakeInferenceOptions
    from rlcore.testing.fake_rows import FakeFormat, FakeRows, FakeTransfer
    from rlcore.testing.fake_sandbox import FakeSandbox, FakeSandboxOptions
    from rlcore.testing.fake_training import FakeTraining, FakeTrainingOptions
    from rlcore.testing.faulty import FaultyInference, FaultyTraining
    from rlcore.testing.judging import FakeReward, FakeTokenReward
    from rlcore.testing.lengths import LengthKind, Lengths
    from rlcore.testing.pipeline import FakePipeline
    from rlcore.testing.plugin_folder import PluginFolder
    from rlcore.testing.policy import FakePolicy
    from rlcore.testing.real import ChatTokenizer, Judge, Registry, RewardEntry, load_eval, load_tokenizer, make_plan, update_engine
    from rlcore.testing.recipes import assert_option, recipe_numbers
    from rlcore.testing.records import make_request, make_reward_batch, make_rollout, make_train_batch
    from rlcore.testing.run_tester import RunOutcome, RunTester
    from rlcore.testing.suites.advantage import AdvantageSuite
    from rlcore.testing.suites.correcting import CorrectionSuite
    from rlcore.testing.suites.data import DataSourceSuite, RowFormatSuite
    from rlcore.testing.suites.divergence import KlSuite
    from rlcore.testing.suites.inference import InferenceBackendSuite
    from rlcore.testing.suites.joining import EngineTransferSuite
    from rlcore.testing.suites.layouts import TrainingLayoutSuite
    from rlcore.testing.suites.loss import LossSuite
    from rlcore.testing.suites.reward import RewardSuite
    from rlcore.testing.suites.running import RuntimeSuite
    from rlcore.testing.suites.sandbox import SandboxSuite
    from rlcore.testing.suites.talking import ConversationSuite
    from rlcore.testing.suites.tracker import TrackerSuite
    from rlcore.testing.suites.training import TrainingBackendSuite
    from rlcore.testing.suites.transfer import WeightTransferSuite
    from rlcore.testing.suites.weighing import AggregationSuite
    from rlcore.testing.tokens import FakeTokenizer, load_fake_tokenizer, write_fake_model
    from rlcore.testing.tracking import FakeTracker, FakeTrackerOptions
    from rlcore.testing.weights import HostSource, publish, snapshot_of, weights_of

__all__ = [
    "AdvantageSuite",
    "AggregationSuite",
    "ChatTokenizer",
    "ConversationSuite",
    "CorrectionSuite",
    "DataSourceSuite",
    "EngineTransferSuite",
    "FakeAggregation",
    "FakeBaseline",
    "FakeConversation",
    "FakeConversationOptions",
    "FakeCorrection",
    "FakeCredit",
    "FakeEstimator",
    "FakeFormat",
    "FakeInference",
    "FakeInferenceOptions",
    "FakeKl",
    "FakeLoss",
    "FakePipeline",
    "FakePolicy",
    "FakeReward",
    "FakeRows",
    "FakeSandbox",
    "FakeSandboxOptions",
    "FakeTokenReward",
    "FakeTokenizer",
    "FakeTracker",
    "FakeTrackerOptions",
    "FakeTraining",
    "FakeTrainingOptions",
    "FakeTransfer",
    "FaultyConversation",
    "FaultyInference",
    "FaultyTraining",
    "HostSource",
    "InferenceBackendSuite",
    "Judge",
    "KlSuite",
    "LengthKind",
    "Lengths",
    "LossSuite",
    "PluginFolder",
    "Registry",
    "RewardEntry",
    "RewardSuite",
    "RowFormatSuite",
    "RunOutcome",
    "RunTester",
    "RuntimeSuite",
    "SandboxSuite",
    "TrackerSuite",
    "TrainingBackendSuite",
    "TrainingLayoutSuite",
    "WeightTransferSuite",
    "assert_option",
    "check_command",
    "load_eval",
    "load_fake_tokenizer",
    "load_tokenizer",
    "make_plan",
    "make_request",
    "make_reward_batch",
    "make_rollout",
    "make_train_batch",
    "publish",
    "recipe_numbers",
    "snapshot_of",
    "update_engine",
    "weights_of",
    "write_fake_model",
]

_HOME = {
    "AdvantageSuite": "suites.advantage",
    "AggregationSuite": "suites.weighing",
    "ChatTokenizer": "real",
    "ConversationSuite": "suites.talking",
    "CorrectionSuite": "suites.correcting",
    "DataSourceSuite": "suites.data",
    "EngineTransferSuite": "suites.joining",
    "FakeAggregation": "algorithms",
    "FakeBaseline": "algorithms",
    "FakeConversation": "fake_conversation",
    "FakeConversationOptions": "fake_conversation",
    "FakeCorrection": "algorithms",
    "FakeCredit": "algorithms",
    "FakeEstimator": "algorithms",
    "FakeInference": "fake_inference",
    "FakeInferenceOptions": "fake_inference",
    "FakeKl": "algorithms",
    "FakeLoss": "algorithms",
    "FakePipeline": "pipeline",
    "FakePolicy": "policy",
    "FakeReward": "judging",
    "FakeFormat": "fake_rows",
    "FakeRows": "fake_rows",
    "FakeSandbox": "fake_sandbox",
    "FakeSandboxOptions": "fake_sandbox",
    "FakeTokenReward": "judging",
    "FakeTokenizer": "tokens",
    "FakeTracker": "tracking",
    "FakeTrackerOptions": "tracking",
    "FakeTraining": "fake_training",
    "FakeTrainingOptions": "fake_training",
    "FakeTransfer": "fake_rows",
    "FaultyConversation": "fake_conversation",
    "FaultyInference": "faulty",
    "FaultyTraining": "faulty",
    "HostSource": "weights",
    "InferenceBackendSuite": "suites.inference",
    "Judge": "real",
    "KlSuite": "suites.divergence",
    "LengthKind": "lengths",
    "Lengths": "lengths",
    "LossSuite": "suites.loss",
    "PluginFolder": "plugin_folder",
    "Registry": "real",
    "RewardEntry": "real",
    "RewardSuite": "suites.reward",
    "RunOutcome": "run_tester",
    "RunTester": "run_tester",
    "RowFormatSuite": "suites.data",
    "RuntimeSuite": "suites.running",
    "SandboxSuite": "suites.sandbox",
    "TrackerSuite": "suites.tracker",
    "TrainingBackendSuite": "suites.training",
    "TrainingLayoutSuite": "suites.layouts",
    "WeightTransferSuite": "suites.transfer",
    "assert_option": "recipes",
    "check_command": "command_check",
    "load_eval": "real",
    "load_fake_tokenizer": "tokens",
    "load_tokenizer": "real",
    "make_plan": "real",
    "make_request": "records",
    "make_reward_batch": "records",
    "make_rollout": "records",
    "make_train_batch": "records",
    "publish": "weights",
    "recipe_numbers": "recipes",
    "snapshot_of": "weights",
    "update_engine": "real",
    "weights_of": "weights",
    "write_fake_model": "tokens",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOME})
