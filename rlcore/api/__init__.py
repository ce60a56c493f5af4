"""The public API for plugins: the names in ``__all__`` are the contract, and nothing else is. Imports no torch.

to register   hookimpl, API_VERSION, PluginKind, and a spec for each thing that a plugin offers: RewardSpec, LossSpec, AdvantageSpec,
              AlgorithmSpec, AggregationSpec, KlSpec, CorrectionSpec, LearningRateScheduleSpec, GroupFilterSpec,
              OptimizerSpec, ModelHookSpec, SamplerSpec, InferenceBackendSpec, TrainingBackendSpec, TrackerSpec, ControllerSpec,
              DataSourceSpec, RuntimeSpec, WeightTransferSpec, SandboxSpec, CommandSpec, ConversationSpec, EnvironmentSpec, RowFormatSpec
rewards       Reward, AsyncReward, RewardInput, Score, Outcome, AuditCase
algorithms    AdvantageEstimator, RewardBatch, RewardDetail, RewardName; Loss, LossBatch, Need, TrainBatch, Objective, Normalisers;
              Aggregation, KlEstimator, Correction (around a loss), LearningRateSchedule, GroupFilter, OptimizerFactory
engines       InferenceBackend, InferenceContext, InferenceCapabilities, InFlight, Request, Sampling, Completion, TokenDetails,
              FinishReason, Tokenizer
trainers      TrainingBackend, TrainingContext, TrainingCapabilities, OptimizerSettings, LoraSettings, PendingSave, ModelRole,
              ModelHook
weights       WeightSource, WeightsManifest, WeightsKind, TensorInfo, Bucket, Snapshot, Tensor
trackers      Tracker, RunInfo
controllers   Controller, Decision
samplers      Sampler, SamplerContext, Draw, DrawResult
records       Prompt, Message, Lease, Segment, Rollout, Group
errors        RlcoreError; UsageError, with its subclasses ConfigError, DataError, PluginError (exit code 2); RunError, with WeightsError
              (exit code 1); InfrastructureError, with SandboxError (the machine failed, not the judged text)

``help(rlcore.api.Reward)`` explains one of them. The other kinds of plugin have separate pages: ``rlcore.api.commands``,
``conversations``, ``data``, ``display``, ``environments``, ``judging``, ``runs``, ``runtime``, ``sandbox``, ``schedule``, ``settings``,
``weights``.

A name is imported on first use. A plugin's entry module imports only specs and ``hookimpl``, so that ``rlcore --help`` can list the
installed plugins without numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.contracts.lazy_names import lazy_names

if TYPE_CHECKING:
    from rlcore.contracts.batches import LossBatch as LossBatch
    from rlcore.contracts.batches import Normalisers as Normalisers
    from rlcore.contracts.batches import RewardBatch as RewardBatch
    from rlcore.contracts.batches import TrainBatch as TrainBatch
    from rlcore.contracts.control import Controller as Controller
    from rlcore.contracts.control import Decision as Decision
    from rlcore.contracts.errors import ConfigError as ConfigError
    from rlcore.contracts.errors import DataError as DataError
    from rlcore.contracts.errors import InfrastructureError as InfrastructureError
    from rlcore.contracts.errors import PluginError as PluginError
    from rlcore.contracts.errors import RlcoreError as RlcoreError
    from rlcore.contracts.errors import RunError as RunError
    from rlcore.contracts.errors import SandboxError as SandboxError
    from rlcore.contracts.errors import UsageError as UsageError
    from rlcore.contracts.errors import WeightsError as WeightsError
    from rlcore.contracts.group_filter import GroupFilter as GroupFilter
    from rlcore.contracts.hookspecs import hookimpl as hookimpl
    from rlcore.contracts.interfaces import AdvantageEstimator as AdvantageEstimator
    from rlcore.contracts.interfaces import InferenceBackend as InferenceBackend
    from rlcore.contracts.interfaces import InferenceContext as InferenceContext
    from rlcore.contracts.interfaces import Loss as Loss
    from rlcore.contracts.interfaces import ModelRole as ModelRole
    from rlcore.contracts.interfaces import Need as Need
    from rlcore.contracts.interfaces import Objective as Objective
    from rlcore.contracts.interfaces import PendingSave as PendingSave
    from rlcore.contracts.interfaces import RewardDetail as RewardDetail
    from rlcore.contracts.interfaces import RunInfo as RunInfo
    from rlcore.contracts.interfaces import Tokenizer as Tokenizer
    from rlcore.contracts.interfaces import Tracker as Tracker
    from rlcore.contracts.interfaces import TrainingBackend as TrainingBackend
    from rlcore.contracts.interfaces import TrainingContext as TrainingContext
    from rlcore.contracts.lease import Lease as Lease
    from rlcore.contracts.loss_wrappers import Aggregation as Aggregation
    from rlcore.contracts.loss_wrappers import Correction as Correction
    from rlcore.contracts.loss_wrappers import KlEstimator as KlEstimator
    from rlcore.contracts.model_hook import ModelHook as ModelHook
    from rlcore.contracts.reward_interface import AsyncReward as AsyncReward
    from rlcore.contracts.reward_interface import Reward as Reward
    from rlcore.contracts.reward_name import RewardName as RewardName
    from rlcore.contracts.sampler import Draw as Draw
    from rlcore.contracts.sampler import DrawResult as DrawResult
    from rlcore.contracts.sampler import Sampler as Sampler
    from rlcore.contracts.sampler import SamplerContext as SamplerContext
    from rlcore.contracts.snapshots import Bucket as Bucket
    from rlcore.contracts.snapshots import Snapshot as Snapshot
    from rlcore.contracts.snapshots import Tensor as Tensor
    from rlcore.contracts.snapshots import TensorInfo as TensorInfo
    from rlcore.contracts.snapshots import WeightsKind as WeightsKind
    from rlcore.contracts.snapshots import WeightsManifest as WeightsManifest
    from rlcore.contracts.snapshots import WeightSource as WeightSource
    from rlcore.contracts.specs import AdvantageSpec as AdvantageSpec
    from rlcore.contracts.specs import AggregationSpec as AggregationSpec
    from rlcore.contracts.specs import AlgorithmSpec as AlgorithmSpec
    from rlcore.contracts.specs import CommandSpec as CommandSpec
    from rlcore.contracts.specs import ControllerSpec as ControllerSpec
    from rlcore.contracts.specs import ConversationSpec as ConversationSpec
    from rlcore.contracts.specs import CorrectionSpec as CorrectionSpec
    from rlcore.contracts.specs import DataSourceSpec as DataSourceSpec
    from rlcore.contracts.specs import EnvironmentSpec as EnvironmentSpec
    from rlcore.contracts.specs import GroupFilterSpec as GroupFilterSpec
    from rlcore.contracts.specs import InferenceBackendSpec as InferenceBackendSpec
    from rlcore.contracts.specs import InferenceCapabilities as InferenceCapabilities
    from rlcore.contracts.specs import InFlight as InFlight
    from rlcore.contracts.specs import KlSpec as KlSpec
    from rlcore.contracts.specs import LearningRateScheduleSpec as LearningRateScheduleSpec
    from rlcore.contracts.specs import LossSpec as LossSpec
    from rlcore.contracts.specs import ModelHookSpec as ModelHookSpec
    from rlcore.contracts.specs import OptimizerSpec as OptimizerSpec
    from rlcore.contracts.specs import PluginKind as PluginKind
    from rlcore.contracts.specs import RewardSpec as RewardSpec
    from rlcore.contracts.specs import RowFormatSpec as RowFormatSpec
    from rlcore.contracts.specs import RuntimeSpec as RuntimeSpec
    from rlcore.contracts.specs import SamplerSpec as SamplerSpec
    from rlcore.contracts.specs import SandboxSpec as SandboxSpec
    from rlcore.contracts.specs import TrackerSpec as TrackerSpec
    from rlcore.contracts.specs import TrainingBackendSpec as TrainingBackendSpec
    from rlcore.contracts.specs import TrainingCapabilities as TrainingCapabilities
    from rlcore.contracts.specs import WeightTransferSpec as WeightTransferSpec
    from rlcore.contracts.training_settings import LearningRateSchedule as LearningRateSchedule
    from rlcore.contracts.training_settings import LoraSettings as LoraSettings
    from rlcore.contracts.training_settings import OptimizerFactory as OptimizerFactory
    from rlcore.contracts.training_settings import OptimizerSettings as OptimizerSettings
    from rlcore.contracts.types import AuditCase as AuditCase
    from rlcore.contracts.types import Completion as Completion
    from rlcore.contracts.types import FinishReason as FinishReason
    from rlcore.contracts.types import Group as Group
    from rlcore.contracts.types import Message as Message
    from rlcore.contracts.types import Outcome as Outcome
    from rlcore.contracts.types import Prompt as Prompt
    from rlcore.contracts.types import Request as Request
    from rlcore.contracts.types import RewardInput as RewardInput
    from rlcore.contracts.types import Rollout as Rollout
    from rlcore.contracts.types import Sampling as Sampling
    from rlcore.contracts.types import Score as Score
    from rlcore.contracts.types import Segment as Segment
    from rlcore.contracts.types import TokenDetails as TokenDetails
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__, "API_VERSION", listed=False)

API_VERSION = "2.0"
"""major.minor. A plugin declares the version for which it was written as ``rlcore_api``."""
