"""The commands ``runs``, ``compare`` and ``rollouts``. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore runs``, ``rlcore compare`` and ``rlcore rollouts``."""
    return [
        CommandSpec(
            name="runs",
            target="rlcore_plugin_runs.runs_command:RunsCommand",
            summary="list runs: state, step, best evaluation, what differs in their settings",
            position=32,
        ),
        CommandSpec(
            name="compare",
            target="rlcore_plugin_runs.compare_command:CompareCommand",
            summary="put runs side by side: settings, versions, data, evaluations, figures",
            position=34,
        ),
        CommandSpec(
            name="rollouts",
            target="rlcore_plugin_runs.rollouts_command:RolloutsCommand",
            summary="show what a model answered in a run, and how it was judged",
            position=36,
        ),
    ]
