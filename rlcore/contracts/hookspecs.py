"""The hooks of rlcore: what a plugin may implement, when each is called, since which version. This file is the manual.

A registering hook returns a list of specs, one for each thing that the plugin offers of a kind, and imports nothing heavy. Observer
hooks are called in the driver process; one that raises is reported once, switched off, and named in the run's summary. No hook sits in
a hot path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from rlcore.contracts.interfaces import RunInfo
    from rlcore.contracts.specs import (
        AdvantageSpec,
        AggregationSpec,
        AlgorithmSpec,
        CommandSpec,
        ConversationSpec,
        CorrectionSpec,
        DataSourceSpec,
        InferenceBackendSpec,
        KlSpec,
        LossSpec,
        RewardSpec,
        RowFormatSpec,
        RuntimeSpec,
        SandboxSpec,
        TrackerSpec,
        TrainingBackendSpec,
        WeightTransferSpec,
    )
    from rlcore.contracts.types import Group

hookspec = pluggy.HookspecMarker("rlcore")
hookimpl = pluggy.HookimplMarker("rlcore")


# --- registering -------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_register_rewards() -> Sequence[RewardSpec]:  # type: ignore[empty-body]
    """Return the rewards that the plugin offers; ``-rt`` and ``[[rewards]]`` choose among them.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_inference_backends() -> Sequence[InferenceBackendSpec]:  # type: ignore[empty-body]
    """Return the inference backends; ``--backend`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_training_backends() -> Sequence[TrainingBackendSpec]:  # type: ignore[empty-body]
    """Return the training backends; ``--trainer`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_advantage_estimators() -> Sequence[AdvantageSpec]:  # type: ignore[empty-body]
    """Return the advantage estimators; a recipe or ``--estimator`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_losses() -> Sequence[LossSpec]:  # type: ignore[empty-body]
    """Return the losses; a recipe or ``--loss`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_aggregations() -> Sequence[AggregationSpec]:  # type: ignore[empty-body]
    """Return the aggregations, which make one number of the losses per token; ``--loss-variation`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_kl_estimators() -> Sequence[KlSpec]:  # type: ignore[empty-body]
    """Return the estimators of the KL divergence from the reference; ``--kl-kind`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_corrections() -> Sequence[CorrectionSpec]:  # type: ignore[empty-body]
    """Return the corrections, which weigh data of another policy; ``--mismatch-correction`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:  # type: ignore[empty-body]
    """Return the recipes: an estimator, a loss and defaults each; ``--algo`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_trackers() -> Sequence[TrackerSpec]:  # type: ignore[empty-body]
    """Return the trackers of metrics; ``--trackers`` chooses some.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_runtimes() -> Sequence[RuntimeSpec]:  # type: ignore[empty-body]
    """Return the runtimes, which place the roles of a run; ``--runtime`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_weight_transfers() -> Sequence[WeightTransferSpec]:  # type: ignore[empty-body]
    """Return the transfers of weights from the trainer to the engines; ``--transport`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_sandboxes() -> Sequence[SandboxSpec]:  # type: ignore[empty-body]
    """Return the sandboxes, which run untrusted programs; a reward's option ``sandbox`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_commands() -> Sequence[CommandSpec]:  # type: ignore[empty-body]
    """Return the commands of the ``rlcore`` command line; the user types their names.

    Called once, when rlcore discovers the installed plugins. ``rlcore --help`` calls this hook alone. Since 1.0.
    """


@hookspec
def rlcore_register_data_sources() -> Sequence[DataSourceSpec]:  # type: ignore[empty-body]
    """Return the readers of data sets; a path chooses one by its prefix or suffix.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_conversations() -> Sequence[ConversationSpec]:  # type: ignore[empty-body]
    """Return the conversations, which make rollouts of prompts; ``--conversation`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


@hookspec
def rlcore_register_row_formats() -> Sequence[RowFormatSpec]:  # type: ignore[empty-body]
    """Return the formats of rows of published data sets; ``--data-format`` or the first row chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


# --- checking ----------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_check_run(config: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return every problem that the plugin sees in a resolved run configuration, one sentence each, [] where it sees none.

    Called after the core's own checks and before anything heavy starts; one problem refuses the run (exit code 2). A command that trains
    nothing, such as an evaluation, names no data to train on: ``config.data.sources`` is empty. Since 1.0.

    :param config: the resolved ``rlcore.config.RunConfig``, frozen.
    """


@hookspec
def rlcore_note_run(config: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return what the user should read of a resolved run configuration, one sentence each: among the notes of the plan. Since 1.0.

    :param config: as for ``rlcore_check_run``, which found no problem.
    """


# --- showing -----------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_open_display(console: Any) -> AbstractContextManager[Any] | None:
    """Return a context manager that shows a run, see ``rlcore.api.display``; None if there is nothing to show on this console. Since 2.0.

    Called when the command line is about to run something, unless the user typed ``--quiet`` or ``--json``. The first plugin that
    returns a display shows the run.

    :param console: the ``rich.console.Console`` of standard output.
    """


# --- observing ---------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_run_started(run: RunInfo) -> None:
    """The run folder exists and training is about to begin. Since 1.0."""


@hookspec
def rlcore_groups_scored(groups: Sequence[Group], version: int) -> None:
    """Groups were scored since the last call, those among them that were filtered or failed; ``version`` is the policy version now.

    Called before each update, in the driver process. The sequence is read-only. Since 1.0.
    """


@hookspec
def rlcore_step_finished(step: int, metrics: Mapping[str, float]) -> None:
    """An update was completed and published; ``step`` counts from 1. Since 1.0."""


@hookspec
def rlcore_note_step(step: int, metrics: Mapping[str, float]) -> Sequence[str]:  # type: ignore[empty-body]
    """Return what the user should be warned of after an update, one sentence each, [] where there is nothing (almost always).

    The run shows each at once as a warning and keeps it among the remarks of its summary; it is for the plugin not to repeat itself.
    Called right after ``rlcore_step_finished``, with the same arguments: a figure may be absent, or NaN. Since 1.0.
    """


@hookspec
def rlcore_checkpoint_saved(step: int, folder: Path) -> None:
    """A checkpoint was written whole. Since 1.0."""


@hookspec
def rlcore_run_finished(summary: Mapping[str, Any]) -> None:
    """The run ended: ``summary`` is what the user is shown, or ``{"error": …}`` where it failed. Since 1.0."""
