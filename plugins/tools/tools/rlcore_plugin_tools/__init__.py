"""The commands of rlcore beside ``train``, one folder a command, the observer in ``health``, and the panel of ``train`` in ``display``.

Importing this loads no numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rlcore.api import CommandSpec, hookimpl

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from rlcore.api.display import Progress

rlcore_api = "2.0"

_COMMANDS = (
    (32, "runs", "runs.runs_command:RunsCommand", "list runs: state, step, best evaluation, what differs in their settings"),
    (34, "compare", "runs.compare_command:CompareCommand", "put runs side by side: settings, versions, data, evaluations, figures"),
    (36, "rollouts", "runs.rollouts_command:RolloutsCommand", "show what a model answered in a run, and how it was judged"),
    (38, "eval", "eval.eval_command:EvalCommand", "measure a model on held-out tasks, without training"),
    (40, "score", "score.score_command:ScoreCommand", "judge a file of completions with a reward, without training"),
    (50, "audit", "score.audit_command:AuditCommand", "show a reward hostile and honest completions, and report what it makes of them"),
    (52, "report", "report.report_command:ReportCommand", "write a run, or several beside each other, as one HTML file"),
    (54, "watch", "report.watch_command:WatchCommand", "show a run in the browser while it continues"),
    (60, "plan", "plan.plan_command:PlanCommand", "say how to split devices between generating and training, by simulation"),
    (70, "show", "show.show_command:ShowCommand", "explain a plugin, or where each setting of a run comes from"),
    (75, "env", "env.env_command:EnvCommand", "make the virtual environment of an engine or a trainer, and find it again"),
)


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Return the spec of each command."""
    return [
        CommandSpec(name=name, target=f"rlcore_plugin_tools.{target}", summary=summary, position=position)
        for position, name, target, summary in _COMMANDS
    ]


@hookimpl
def rlcore_open_display(console: Console) -> AbstractContextManager[Progress] | None:
    """Return the panel, None if the console is no terminal that can show it."""
    from rlcore_plugin_tools.display.live_display import live_display  # here: it brings numpy

    return live_display(console)
