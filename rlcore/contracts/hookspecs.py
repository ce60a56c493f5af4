"""The hooks of rlcore: what a plugin may implement, when each is called, since which version. This file is the manual.

Registering hooks are called once, when plugins are first listed; they must be import-light and return specs. Observer hooks are
called in the driver process; one that raises is reported once, switched off, and named in the run's summary. No hook sits in a hot path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

if TYPE_CHECKING:
    from rlcore.contracts import specs
    from rlcore.contracts.interfaces import RunInfo
    from rlcore.contracts.types import Group

hookspec = pluggy.HookspecMarker("rlcore")
hookimpl = pluggy.HookimplMarker("rlcore")


# --- registering -------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_register_rewards() -> Sequence[specs.RewardSpec]:  # type: ignore[empty-body]
    """Offer rewards. Since 1.0."""


@hookspec
def rlcore_register_inference_backends() -> Sequence[specs.InferenceBackendSpec]:  # type: ignore[empty-body]
    """Offer inference backends. Since 1.0."""


@hookspec
def rlcore_register_training_backends() -> Sequence[specs.TrainingBackendSpec]:  # type: ignore[empty-body]
    """Offer training backends. Since 1.0."""


@hookspec
def rlcore_register_advantage_estimators() -> Sequence[specs.AdvantageSpec]:  # type: ignore[empty-body]
    """Offer advantage estimators. Since 1.0."""


@hookspec
def rlcore_register_losses() -> Sequence[specs.LossSpec]:  # type: ignore[empty-body]
    """Offer losses. Since 1.0."""


@hookspec
def rlcore_register_algorithms() -> Sequence[specs.AlgorithmSpec]:  # type: ignore[empty-body]
    """Offer recipes: estimator + loss + defaults. Since 1.0."""


@hookspec
def rlcore_register_trackers() -> Sequence[specs.TrackerSpec]:  # type: ignore[empty-body]
    """Offer trackers of metrics. Since 1.0."""


@hookspec
def rlcore_register_runtimes() -> Sequence[specs.RuntimeSpec]:  # type: ignore[empty-body]
    """Offer runtimes: where the roles of a run live. Since 1.0."""


@hookspec
def rlcore_register_weight_transfers() -> Sequence[specs.WeightTransferSpec]:  # type: ignore[empty-body]
    """Offer weight transfers: how weights travel from the trainer to the engines. Since 1.0."""


@hookspec
def rlcore_register_sandboxes() -> Sequence[specs.SandboxSpec]:  # type: ignore[empty-body]
    """Offer sandboxes, which run programs that nobody trusts. Since 1.0."""


@hookspec
def rlcore_register_commands() -> Sequence[specs.CommandSpec]:  # type: ignore[empty-body]
    """Offer commands of the command line. Since 1.0."""


@hookspec
def rlcore_register_data_sources() -> Sequence[specs.DataSourceSpec]:  # type: ignore[empty-body]
    """Offer data sources: readers of data sets. Since 1.0."""


# --- checking ----------------------------------------------------------------------------------------------------------


@hookspec
def rlcore_check_run(config: Any) -> Sequence[str]:  # type: ignore[empty-body]
    """Return every problem that the plugin sees in a resolved run configuration, one sentence each, [] where it sees none.

    Called after the core's own checks and before anything heavy starts; one problem refuses the run (exit code 2). Since 1.0.

    :param config: the resolved ``rlcore.config.RunConfig``, frozen.
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
def rlcore_checkpoint_saved(step: int, folder: Path) -> None:
    """A checkpoint was written whole. Since 1.0."""


@hookspec
def rlcore_run_finished(summary: Mapping[str, Any]) -> None:
    """The run ended: ``summary`` is what the user is shown, or ``{"error": …}`` where it failed. Since 1.0."""
