"""Acme's plugins for rlcore, one of each open kind."""

from __future__ import annotations

from rlcore.api import (
    AggregationSpec,
    CommandSpec,
    ConversationSpec,
    CorrectionSpec,
    DataSourceSpec,
    EnvironmentSpec,
    GroupFilterSpec,
    KlSpec,
    LearningRateScheduleSpec,
    ModelHookSpec,
    RuntimeSpec,
    SandboxSpec,
    TrackerSpec,
    WeightTransferSpec,
    hookimpl,
)

rlcore_api = "2.0"

GATE = CorrectionSpec(
    name="acme_gate",
    target="acme_rlcore.algorithm:Gate",
    summary="1 within the range, 0 outside",
    usual_range=(0.5, 1.5),
    masks=True,
)
"""The class takes its facts from here."""


@hookimpl
def rlcore_register_aggregations() -> list[AggregationSpec]:
    """Register an aggregation between token level and sample level."""
    return [
        AggregationSpec(
            name="acme_root",
            target="acme_rlcore.algorithm:RootOfLength",
            summary="A rollout is weighted by the square root of its length",
        )
    ]


@hookimpl
def rlcore_register_kl_estimators() -> list[KlSpec]:
    """Register a bounded KL estimator."""
    return [
        KlSpec(
            name="acme_bounded",
            target="acme_rlcore.algorithm:BoundedKl",
            config="acme_rlcore.algorithm:BoundedOptions",
            summary="A parabola that turns into a line",
        )
    ]


@hookimpl
def rlcore_register_lr_schedules() -> list[LearningRateScheduleSpec]:
    """Register a learning rate that falls in steps."""
    return [
        LearningRateScheduleSpec(
            name="acme_stairs",
            target="acme_rlcore.algorithm:Stairs",
            config="acme_rlcore.algorithm:StairsOptions",
            summary="Parts of equal length, each with half the rate of the one before",
        )
    ]


@hookimpl
def rlcore_register_model_hooks() -> list[ModelHookSpec]:
    """Register a hook that freezes the first layers."""
    return [
        ModelHookSpec(
            name="acme_frozen_layers",
            target="acme_rlcore.model_hook:FrozenLayers",
            config="acme_rlcore.model_hook:FrozenLayersOptions",
            summary="Trains neither the embedding nor the first layers",
        )
    ]


@hookimpl
def rlcore_register_filters() -> list[GroupFilterSpec]:
    """Register a filter of short answers."""
    return [
        GroupFilterSpec(
            name="acme_shortest",
            target="acme_rlcore.algorithm:Shortest",
            config="acme_rlcore.algorithm:ShortestOptions",
            summary="The shortest answers of a group",
        )
    ]


@hookimpl
def rlcore_register_corrections() -> list[CorrectionSpec]:
    """Register a correction that is a gate."""
    return [GATE]


@hookimpl
def rlcore_register_sandboxes() -> list[SandboxSpec]:
    """Register a sandbox on another machine."""
    return [
        SandboxSpec(
            name="acme_http",
            target="acme_rlcore.sandbox:HttpSandbox",
            config="acme_rlcore.sandbox:HttpSandboxOptions",
            summary="Programs run on another machine, behind an HTTP service",
            levels=("remote",),
        )
    ]


@hookimpl
def rlcore_register_weight_transfers() -> list[WeightTransferSpec]:
    """Register a weight transfer through files."""
    return [
        WeightTransferSpec(
            name="acme_files",
            target="acme_rlcore.transfer:FileTransfer",
            config="acme_rlcore.transfer:FileOptions",
            summary="One file for each version, in a folder that all processes see",
            reach="host",
        )
    ]


@hookimpl
def rlcore_register_data_sources() -> list[DataSourceSpec]:
    """Register a source of generated rows."""
    return [
        DataSourceSpec(
            name="acme_made",
            target="acme_rlcore.data:MadeRows",
            config="acme_rlcore.data:MadeOptions",
            summary="acme:say: letters to say",
            prefix="acme:",
        )
    ]


@hookimpl
def rlcore_register_conversations() -> list[ConversationSpec]:
    """Register a guessing game."""
    return [
        ConversationSpec(
            name="acme_guess",
            target="acme_rlcore.conversation:GuessAgain",
            config="acme_rlcore.conversation:GuessOptions",
            summary="Guess a number, hear whether it is higher or lower, guess again",
        )
    ]


@hookimpl
def rlcore_register_environments() -> list[EnvironmentSpec]:
    """Register a shop."""
    return [
        EnvironmentSpec(
            name="acme_shop",
            target="acme_rlcore.environment:Shop",
            config="acme_rlcore.environment:ShopOptions",
            summary="Ask for prices, and say what a purchase costs",
            deterministic=True,
        )
    ]


@hookimpl
def rlcore_register_trackers() -> list[TrackerSpec]:
    """Register a tracker that writes a text file."""
    return [
        TrackerSpec(
            name="acme_lines",
            target="acme_rlcore.tracker:LineTracker",
            config="acme_rlcore.tracker:LineOptions",
            summary="One line for each figure",
        )
    ]


@hookimpl
def rlcore_register_runtimes() -> list[RuntimeSpec]:
    """Register a runtime of one process."""
    return [
        RuntimeSpec(
            name="acme_pool",
            target="acme_rlcore.runtime:PoolCrew",
            config="acme_rlcore.runtime:PoolOptions",
            summary="One process; a separate thread generates, and training waits for it",
        )
    ]


@hookimpl
def rlcore_register_commands() -> list[CommandSpec]:
    """Register a command that reads run folders."""
    return [
        CommandSpec(
            name="acme-report",
            target="acme_rlcore.command:ReportCommand",
            summary="one figure of a run, from its first update to its last",
        )
    ]
