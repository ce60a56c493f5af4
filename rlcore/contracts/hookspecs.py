"""The hooks that a plugin can implement, when rlcore calls each of them, and since which version.

A hook may leave out arguments that it does not read. Registering hooks are called once, when plugins are first listed. Each returns a list
of specs, one for each thing that the plugin offers of its kind, and imports nothing heavy. Observing hooks are called in the process that
drives the run. If an observer raises, the run reports the error once, switches the observer off, and names it in its summary. No hook is
called in a hot path.
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
        ControllerSpec,
        ConversationSpec,
        CorrectionSpec,
        DataSourceSpec,
        EnvironmentSpec,
        GroupFilterSpec,
        InferenceBackendSpec,
        KlSpec,
        LearningRateScheduleSpec,
        LossSpec,
        ModelHookSpec,
        OptimizerSpec,
        PluginKind,
        RewardSpec,
        RowFormatSpec,
        RuntimeSpec,
        SamplerSpec,
        SandboxSpec,
        TrackerSpec,
        TrainingBackendSpec,
        WeightTransferSpec,
    )
    from rlcore.contracts.types import Group, Prompt

hookspec = pluggy.HookspecMarker("rlcore")
hookimpl = pluggy.HookimplMarker("rlcore")
OBSERVING_HOOKS = tuple(
    f"rlcore_{event}"
    for event in ("run_started", "groups_scored", "step_finished", "note_step", "checkpoint_saved", "run_timed", "run_finished")
)
"""The hooks of observers. Their options are in ``[log.observers.DISTRIBUTION]``, which they find in the configuration."""


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
def rlcore_register_lr_schedules() -> Sequence[LearningRateScheduleSpec]:  # type: ignore[empty-body]
    """Return the learning-rate schedules; ``--lr-schedule`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
    """


@hookspec
def rlcore_register_model_hooks() -> Sequence[ModelHookSpec]:  # type: ignore[empty-body]
    """Return the changes of a model before it is trained; ``--model-hook`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
    """


@hookspec
def rlcore_register_filters() -> Sequence[GroupFilterSpec]:  # type: ignore[empty-body]
    """Return the filters of groups; ``--filters`` chooses some.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
    """


@hookspec
def rlcore_register_optimizers() -> Sequence[OptimizerSpec]:  # type: ignore[empty-body]
    """Return the optimizers; ``--optimizer`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
    """


@hookspec
def rlcore_register_samplers() -> Sequence[SamplerSpec]:  # type: ignore[empty-body]
    """Return the samplers, which decide the order of the prompts, or of the sources of a run; ``--sampler`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
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
def rlcore_register_controllers() -> Sequence[ControllerSpec]:  # type: ignore[empty-body]
    """Return the controllers, which steer a run; ``--controllers`` chooses some.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
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
def rlcore_register_environments() -> Sequence[EnvironmentSpec]:  # type: ignore[empty-body]
    """Return the environments, which play episodes with the policy; ``--environment`` chooses one.

    Called once, when rlcore discovers the installed plugins. Since 2.0.
    """


@hookspec
def rlcore_register_row_formats() -> Sequence[RowFormatSpec]:  # type: ignore[empty-body]
    """Return the formats of rows of published data sets; ``--data-format`` or the first row chooses one.

    Called once, when rlcore discovers the installed plugins. Since 1.0.
    """


# --- checking ----------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_check_run(config: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return every problem that the plugin finds in a resolved run configuration, one sentence each; [] if it finds none.

    Called after the core's own checks and before anything heavy starts. One problem refuses the run (exit code 2). A command that does not
    train, such as an evaluation, has no training data: ``config.data.sources`` is empty. Since 1.0.

    :param config: the resolved ``rlcore.config.RunConfig``, frozen.
    """


@hookspec
def rlcore_note_run(config: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return notes on a resolved run configuration that the user should read, one sentence each. The plan shows them. Since 1.0.

    :param config: as for ``rlcore_check_run``, which found no problem.
    """


@hookspec
def rlcore_remark_run(facts: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return remarks on legal but noteworthy settings, one sentence each. The plan shows them before the notes. Since 2.0.

    :param facts: a ``RuleContext`` (``rlcore.api.settings``): the configuration, the specs of its plugins, and settings as the user typed
        them.
    """


@hookspec
def rlcore_check_machine(plan: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return remarks on this machine, one sentence each, for a plan whose run is about to start here; [] if there are none. Since 2.0.

    Called by ``rlcore train`` and ``rlcore resume``, also with ``--dry-run``, and by ``rlcore.train``, before data or models are loaded.

    :param plan: a ``Plan`` (``rlcore.api.commands``).
    :raises ConfigError: the run cannot start on this machine.
    """


@hookspec
def rlcore_note_data(config: Any, data: Mapping[str, Sequence[Prompt]]) -> Sequence[str]:  # type: ignore[empty-body]
    """Return notes on the prompts of a run that the user should read, one sentence each. Since 2.0.

    :param config: as for ``rlcore_check_run``.
    :param data: the prompts of each data set, by its name.
    :raises DataError: the run cannot use a prompt; a dry run refuses it, and a run before it loads a model.
    """


# --- functions and names of other libraries -----------------------------------------------------------------------------


@hookspec
def rlcore_adapt_function(kind: PluginKind, function: Any) -> type | None:
    """Return a class of ``kind`` that calls a function as another library does; None if it is not such a function. Since 2.0.

    Called for each function that a user gives in place of a plugin: in Python, or as ``./my.py:NAME``. The first class is used. Its
    attribute ``Options``, if it has one, is its options model, of which an instance must be possible without arguments.
    """


@hookspec
def rlcore_translate_arguments(arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return the arguments of ``rlcore.train`` with other names or values; None if none of them is another library's. Since 2.0.

    :param arguments: by name; those that are None are left out.
    :raises ConfigError: an argument of another library has no counterpart; the message names what to pass instead.
    """


@hookspec
def rlcore_plan_arguments() -> str | None:
    """Return the target (``module:function``) of a function that plans a run from arguments of Python, such as those of ``rlcore.train``.
    Since 2.0.

    Called when a program calls such a function. The first one is used, with the arguments of ``rlcore.api.commands.plan_arguments``.
    """


@hookspec
def rlcore_tokenizer_class() -> str | None:
    """Return the target (``module:Class``) of a ``ChatTokenizer`` (``rlcore.api.data``), which reads the tokenizer of a model. Since 2.0.

    Called when a run or a command first needs the tokenizer of an inference backend whose spec names none of its own. The first class is
    used.
    """


# --- showing -----------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_open_display(console: Any) -> AbstractContextManager[Any] | None:
    """Return a context manager that shows a run, see ``rlcore.api.display``; None if this console cannot show anything. Since 2.0.

    Called when the command line is about to run something, unless the user typed ``--quiet`` or ``--json``. The first plugin that returns a
    display shows the run.

    :param console: the ``rich.console.Console`` of standard output.
    """


# --- observing ---------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_run_started(run: RunInfo) -> None:
    """Observe the start of training. Since 1.0.

    Called once, when the run folder exists and the parts of the run are loaded. A resumed run calls it again, with the step from which it
    continues in ``run.step``.

    :param run: the folder, the settings as plain values (``run.config``), and the step, which is 0 for a new run.
    """


@hookspec
def rlcore_groups_scored(groups: Sequence[Group], version: int) -> None:
    """Observe the groups that were scored since the last call, including those that were filtered or failed.

    Called before each update, in the driver process. The sequence is read-only. Since 1.0.

    :param version: the current policy version.
    """


@hookspec
def rlcore_step_finished(step: int, metrics: Mapping[str, float]) -> None:
    """Observe an update that was completed and published. Since 1.0.

    :param step: the number of the update, from 1; a resumed run counts on.
    :param metrics: the row that metrics.jsonl has for this update. Which names it has depends on the run.
    """


@hookspec
def rlcore_note_step(step: int, metrics: Mapping[str, float]) -> Sequence[str]:  # type: ignore[empty-body]
    """Return warnings for the user after an update, one sentence each; [] if there are none, which is the usual case.

    The run shows each one at once as a warning and keeps it among the remarks of its summary. The plugin must not repeat itself. Called
    right after ``rlcore_step_finished``, with the same arguments: a figure may be absent, or NaN. Since 1.0.
    """


@hookspec
def rlcore_checkpoint_saved(step: int, folder: Path) -> None:
    """Observe a checkpoint that was written completely, also the one that an interrupted run saves before it ends. Since 1.0.

    :param folder: of the checkpoint. Later checkpoints may replace it, see ``log.keep_checkpoints``.
    """


@hookspec
def rlcore_run_timed(folder: Path, rows: Sequence[tuple[str, str, str, float, float]]) -> None:
    """Observe how the time of a run was spent, after its last update. Since 2.0.

    Called for a run that ended by itself, by a controller or by one Ctrl-C, but not for one that failed.

    :param folder: of the run.
    :param rows: worker, role, activity, start in seconds since 1970, and seconds. Rows of one worker do not overlap.
    """


@hookspec
def rlcore_run_finished(summary: Mapping[str, Any]) -> None:
    """Observe the end of a run whose start was observed, after success, after Ctrl-C and after a failure. Since 1.0.

    Not called if the process is killed.

    :param summary: what ``--json`` prints for the run (``interrupted`` is true after Ctrl-C), or ``{"error": …}`` if it failed.
    """
