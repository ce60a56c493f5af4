"""The public surface for plugins: what stands in ``__all__`` is the contract, and nothing else is. Imports no torch.

to register   hookimpl, API_VERSION, PluginKind, and a spec for each thing that is offered: RewardSpec, LossSpec, AdvantageSpec,
              AlgorithmSpec, AggregationSpec, KlSpec, CorrectionSpec, InferenceBackendSpec, TrainingBackendSpec, TrackerSpec,
              DataSourceSpec, RuntimeSpec, WeightTransferSpec, SandboxSpec, CommandSpec, ConversationSpec, RowFormatSpec
rewards       Reward, AsyncReward, RewardInput, Score, Outcome, AuditCase
algorithms    AdvantageEstimator, RewardBatch, RewardDetail; Loss, LossBatch, Need, TrainBatch, Objective, Normalisers;
              Aggregation, KlEstimator, Correction (around a loss)
engines       InferenceBackend, InferenceContext, InferenceCapabilities, InFlight, Request, Sampling, Completion, TokenDetails,
              FinishReason, Tokenizer
trainers      TrainingBackend, TrainingContext, TrainingCapabilities, OptimizerSettings, LoraSettings, PendingSave, ModelRole
weights       WeightSource, WeightsManifest, WeightsKind, TensorInfo, Bucket, Snapshot, Tensor, Probe
trackers      Tracker, RunInfo
records       Prompt, Message, Lease, Segment, Rollout, RolloutKind, Group
errors        RlcoreError; UsageError, with its children ConfigError, DataError, PluginError (exit code 2); RunError, with WeightsError
              (exit code 1); InfrastructureError, with SandboxError (the machine failed, not the text that is judged)

``help(rlcore.api.Reward)`` explains one of them. Pages of their own, for the other kinds of plugin: ``rlcore.api.commands``,
``conversations``, ``data``, ``display``, ``judging``, ``runtime``, ``sandbox``, ``schedule``, ``settings``, ``weights``.

A name is imported when it is first used: a plugin's entry module asks for specs and ``hookimpl`` only, so that listing what is installed
(``rlcore --help``) loads no numpy.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.contracts.batches import LossBatch, Normalisers, RewardBatch, TrainBatch
    from rlcore.contracts.errors import (
        ConfigError,
        DataError,
        InfrastructureError,
        PluginError,
        RlcoreError,
        RunError,
        SandboxError,
        UsageError,
        WeightsError,
    )
    from rlcore.contracts.hookspecs import hookimpl
    from rlcore.contracts.interfaces import (
        AdvantageEstimator,
        AsyncReward,
        InferenceBackend,
        InferenceContext,
        Loss,
        ModelRole,
        Need,
        Objective,
        PendingSave,
        Reward,
        RewardDetail,
        RunInfo,
        Tokenizer,
        Tracker,
        TrainingBackend,
        TrainingContext,
    )
    from rlcore.contracts.loss_wrappers import Aggregation, Correction, KlEstimator
    from rlcore.contracts.snapshots import Bucket, Probe, Snapshot, Tensor, TensorInfo, WeightsKind, WeightsManifest, WeightSource
    from rlcore.contracts.specs import (
        AdvantageSpec,
        AggregationSpec,
        AlgorithmSpec,
        CommandSpec,
        ConversationSpec,
        CorrectionSpec,
        DataSourceSpec,
        InferenceBackendSpec,
        InferenceCapabilities,
        InFlight,
        KlSpec,
        LossSpec,
        PluginKind,
        RewardSpec,
        RowFormatSpec,
        RuntimeSpec,
        SandboxSpec,
        TrackerSpec,
        TrainingBackendSpec,
        TrainingCapabilities,
        WeightTransferSpec,
    )
    from rlcore.contracts.training_settings import LoraSettings, OptimizerSettings
    from rlcore.contracts.types import (
        AuditCase,
        Completion,
        FinishReason,
        Group,
        Lease,
        Message,
        Outcome,
        Prompt,
        Request,
        RewardInput,
        Rollout,
        RolloutKind,
        Sampling,
        Score,
        Segment,
        TokenDetails,
    )

API_VERSION = "2.0"
"""major.minor; a plugin names the one it was written for as ``rlcore_api``."""

__all__ = [
    "API_VERSION",
    "AdvantageEstimator",
    "AdvantageSpec",
    "Aggregation",
    "AggregationSpec",
    "AlgorithmSpec",
    "AsyncReward",
    "AuditCase",
    "Bucket",
    "CommandSpec",
    "Completion",
    "ConfigError",
    "ConversationSpec",
    "Correction",
    "CorrectionSpec",
    "DataError",
    "DataSourceSpec",
    "FinishReason",
    "Group",
    "InFlight",
    "InferenceBackend",
    "InferenceBackendSpec",
    "InferenceCapabilities",
    "InferenceContext",
    "InfrastructureError",
    "KlEstimator",
    "KlSpec",
    "Lease",
    "LoraSettings",
    "Loss",
    "LossBatch",
    "LossSpec",
    "Message",
    "ModelRole",
    "Need",
    "Normalisers",
    "Objective",
    "OptimizerSettings",
    "Outcome",
    "PendingSave",
    "PluginError",
    "PluginKind",
    "Probe",
    "Prompt",
    "Request",
    "Reward",
    "RewardBatch",
    "RewardDetail",
    "RewardInput",
    "RewardSpec",
    "RlcoreError",
    "Rollout",
    "RolloutKind",
    "RowFormatSpec",
    "RunError",
    "RunInfo",
    "RuntimeSpec",
    "Sampling",
    "SandboxError",
    "SandboxSpec",
    "Score",
    "Segment",
    "Snapshot",
    "Tensor",
    "TensorInfo",
    "TokenDetails",
    "Tokenizer",
    "Tracker",
    "TrackerSpec",
    "TrainBatch",
    "TrainingBackend",
    "TrainingBackendSpec",
    "TrainingCapabilities",
    "TrainingContext",
    "UsageError",
    "WeightSource",
    "WeightTransferSpec",
    "WeightsError",
    "WeightsKind",
    "WeightsManifest",
    "hookimpl",
]

_HOMES = ("errors", "specs", "hookspecs", "types", "batches", "snapshots", "training_settings", "interfaces", "loss_wrappers")
"""The modules of ``rlcore.contracts`` where the names are defined, from light to heavy: a light name must load no heavy module."""


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"rlcore.contracts.{home}")
            if hasattr(module, name):
                return globals().setdefault(name, getattr(module, name))
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """Without the names of ``__all__``: for each of them ``help(rlcore.api)`` would print the whole class, and all that it inherits."""
    return sorted({"API_VERSION", *globals()} - set(__all__))
