"""The hooks of rlcore: what a plugin may implement, when each is called, since which version. This file is the manual.

Registering hooks are called once, when plugins are first listed; they must be import-light and return specs. Observer hooks are
called in the driver process; one that raises is reported once, switched off, and named in the run's summary. No hook sits in a hot path.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pluggy

from rlcore.contracts.specs import LABELS, REGISTERING_HOOKS, SPEC_OF_KIND, PluginKind, Spec

if TYPE_CHECKING:
    from rlcore.contracts.interfaces import RunInfo
    from rlcore.contracts.types import Group

hookspec = pluggy.HookspecMarker("rlcore")
hookimpl = pluggy.HookimplMarker("rlcore")


# --- registering -------------------------------------------------------------------------------------------------------


def _registering(kind: PluginKind) -> Any:
    """The specification of the hook by which a plugin offers things of a kind."""

    def register() -> Sequence[Spec]:  # type: ignore[empty-body]
        pass

    register.__doc__ = f"Return a list of {SPEC_OF_KIND[kind].__name__}, one for each {LABELS[kind]} that the plugin offers. Since 1.0."
    return hookspec(register)


globals().update({hook: _registering(kind) for hook, kind in REGISTERING_HOOKS.items()})
"""``rlcore_register_rewards``, ``rlcore_register_losses``, …: one for each kind of plugin, named and paired with its spec in ``specs``."""


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
