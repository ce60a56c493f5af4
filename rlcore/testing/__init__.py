"""The kit for authors of plugins: a conformance suite and fakes for each kind, and a tester of command lines.

A suite is a class of pytest rules. A subclass defines how to make the thing under test; each ``test_`` method checks one rule, and its
docstring states the rule. No suite imports pytest, so its methods can also be called one by one.

Recipes have no suite: they are data, and the program checks them. ``rlcore show algo NAME`` finds the recipe's estimator and loss and
prints its settings. ``rlcore train FILE.toml --algo NAME --dry-run`` checks each default and option of it, as a run would, and loads
nothing.

Names are imported when they are first used, so a fake loads no torch and a program that is not a test loads no pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.contracts.lazy_names import lazy_names

if TYPE_CHECKING:
    from rlcore.testing.algorithms.advantage_suite import AdvantageSuite as AdvantageSuite
    from rlcore.testing.algorithms.aggregation_suite import AggregationSuite as AggregationSuite
    from rlcore.testing.algorithms.correction_suite import CorrectionSuite as CorrectionSuite
    from rlcore.testing.algorithms.group_filter_suite import GroupFilterSuite as GroupFilterSuite
    from rlcore.testing.algorithms.kl_suite import KlSuite as KlSuite
    from rlcore.testing.algorithms.loss_suite import LossSuite as LossSuite
    from rlcore.testing.algorithms.lr_schedule_suite import LearningRateScheduleSuite as LearningRateScheduleSuite
    from rlcore.testing.algorithms.optimizer_suite import OptimizerSuite as OptimizerSuite
    from rlcore.testing.chat_tokenizer import ChatTokenizer as ChatTokenizer
    from rlcore.testing.command_check import check_command as check_command
    from rlcore.testing.control.controller_suite import ControllerSuite as ControllerSuite
    from rlcore.testing.conversations.conversation_suite import ConversationSuite as ConversationSuite
    from rlcore.testing.conversations.environment_suite import EnvironmentSuite as EnvironmentSuite
    from rlcore.testing.core_parts import Judge as Judge
    from rlcore.testing.core_parts import Registry as Registry
    from rlcore.testing.core_parts import RewardEntry as RewardEntry
    from rlcore.testing.core_parts import load_eval as load_eval
    from rlcore.testing.core_parts import make_plan as make_plan
    from rlcore.testing.core_parts import update_engine as update_engine
    from rlcore.testing.data.data_suites import DataSourceSuite as DataSourceSuite
    from rlcore.testing.data.data_suites import RowFormatSuite as RowFormatSuite
    from rlcore.testing.data.generator_suite import RowGeneratorSuite as RowGeneratorSuite
    from rlcore.testing.inference.fake_inference import FakeInference as FakeInference
    from rlcore.testing.inference.fake_inference import FakeInferenceOptions as FakeInferenceOptions
    from rlcore.testing.inference.inference_suite import InferenceBackendSuite as InferenceBackendSuite
    from rlcore.testing.lengths import LengthKind as LengthKind
    from rlcore.testing.lengths import Lengths as Lengths
    from rlcore.testing.plugin_folder import PluginFolder as PluginFolder
    from rlcore.testing.policy import FakePolicy as FakePolicy
    from rlcore.testing.recipes import assert_option as assert_option
    from rlcore.testing.recipes import recipe_numbers as recipe_numbers
    from rlcore.testing.records import make_reward_batch as make_reward_batch
    from rlcore.testing.records import make_rollout as make_rollout
    from rlcore.testing.records import make_train_batch as make_train_batch
    from rlcore.testing.rewards.reward_suite import RewardSuite as RewardSuite
    from rlcore.testing.run_tester import RunOutcome as RunOutcome
    from rlcore.testing.run_tester import RunTester as RunTester
    from rlcore.testing.runtimes.runtime_suite import RuntimeSuite as RuntimeSuite
    from rlcore.testing.sampling.sampler_suite import SamplerSuite as SamplerSuite
    from rlcore.testing.sandboxes.fake_sandbox import FakeSandbox as FakeSandbox
    from rlcore.testing.sandboxes.sandbox_suite import SandboxSuite as SandboxSuite
    from rlcore.testing.tokens import FakeTokenizer as FakeTokenizer
    from rlcore.testing.tokens import load_fake_tokenizer as load_fake_tokenizer
    from rlcore.testing.tokens import write_fake_model as write_fake_model
    from rlcore.testing.trackers.tracker_suite import TrackerSuite as TrackerSuite
    from rlcore.testing.training.fake_training import FakeTraining as FakeTraining
    from rlcore.testing.training.layout_suite import TrainingLayoutSuite as TrainingLayoutSuite
    from rlcore.testing.training.model_hook_suite import ModelHookSuite as ModelHookSuite
    from rlcore.testing.training.training_suite import TrainingBackendSuite as TrainingBackendSuite
    from rlcore.testing.transfers.engine_transfer_suite import EngineTransferSuite as EngineTransferSuite
    from rlcore.testing.transfers.transfer_suite import WeightTransferSuite as WeightTransferSuite
    from rlcore.testing.weights import HostSource as HostSource
    from rlcore.testing.weights import publish as publish
    from rlcore.testing.weights import snapshot_of as snapshot_of
    from rlcore.testing.weights import weights_of as weights_of
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
