"""The commands of rlcore except ``train``, one folder a command; the observer in ``health``; the controllers in ``control``; the
samplers in ``sampling``; the remarks on a run's settings in ``remarks``; and its displays in ``display``.

Importing this loads no numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rlcore.api import CommandSpec, ControllerSpec, SamplerSpec, hookimpl

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from rich.console import Console

    from rlcore.api.commands import Plan
    from rlcore.api.display import Progress
    from rlcore.api.settings import RuleContext

rlcore_api = "2.0"

_COMMANDS = (
    (32, "runs", "runs.runs_command:RunsCommand", "list runs: state, step, best evaluation, differing settings"),
    (34, "compare", "runs.compare_command:CompareCommand", "put runs side by side: settings, versions, data, evaluations, figures"),
    (36, "rollouts", "runs.rollouts_command:RolloutsCommand", "show the answers of a run's model, and their verdicts"),
    (38, "eval", "eval.eval_command:EvalCommand", "measure a model on held-out tasks, without training"),
    (40, "score", "score.score_command:ScoreCommand", "judge a file of completions with a reward, without training"),
    (50, "audit", "score.audit_command:AuditCommand", "test a reward with hostile and honest completions, and report its verdicts"),
    (52, "report", "report.report_command:ReportCommand", "write one run, or several side by side, as one HTML file"),
    (54, "watch", "report.watch_command:WatchCommand", "show a run in the browser while it continues"),
    (60, "plan", "plan.plan_command:PlanCommand", "find a split of devices between generation and training, by simulation"),
    (70, "show", "show.show_command:ShowCommand", "explain a plugin, or where each setting of a run comes from"),
    (75, "env", "env.env_command:EnvCommand", "make, list, find and remove the virtual environments of engines and trainers"),
)
ADAPTIVE_KL = ControllerSpec(
    name="adaptive_kl",
    target="rlcore_plugin_tools.control.adaptive_kl:AdaptiveKl",
    config="rlcore_plugin_tools.control.adaptive_kl:AdaptiveKlOptions",
    summary="keeps the KL divergence from the reference near a target by changing kl_coeff",
    source="Ziegler et al., Fine-Tuning Language Models from Human Preferences (arXiv 1909.08593), section 2.2",
    sets=("algorithm.kl_coeff",),
)
PLATEAU = ControllerSpec(
    name="plateau",
    target="rlcore_plugin_tools.control.plateau:Plateau",
    config="rlcore_plugin_tools.control.plateau:PlateauOptions",
    summary="multiplies the learning rate by a factor whenever a figure has stopped to improve",
    source="torch.optim.lr_scheduler.ReduceLROnPlateau",
    scales=("training.learning_rate",),
)
_FUNCTIONS = {"eval": "evaluate", "score": "score", "runs": "load_run"}
"""Functions for Python by the commands that do the same: ``rlcore.evaluate``, …"""


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Return the spec of each command."""
    return [
        CommandSpec(
            name=name,
            target=f"rlcore_plugin_tools.{target}",
            summary=summary,
            position=position,
            function=f"rlcore_plugin_tools.functions:{_FUNCTIONS[name]}" if name in _FUNCTIONS else "",
        )
        for position, name, target, summary in _COMMANDS
    ]


@hookimpl
def rlcore_register_controllers() -> Sequence[ControllerSpec]:
    """Return early stopping, an adaptive KL coefficient, and a learning rate that follows the reward."""
    where = "rlcore_plugin_tools.control"
    return [
        ControllerSpec(
            name="early_stopping",
            target=f"{where}.early_stopping:EarlyStopping",
            config=f"{where}.early_stopping:EarlyStoppingOptions",
            summary="stops the run if a figure has not improved in so many evaluations or updates",
            source="Prechelt, Early Stopping - But When? (1998), section 2",
        ),
        ADAPTIVE_KL,
        PLATEAU,
    ]


@hookimpl
def rlcore_register_samplers() -> Sequence[SamplerSpec]:
    """Return curricula by success and by a column, replay, and levels that rise."""
    return [
        SamplerSpec(
            name=name,
            target=f"rlcore_plugin_tools.sampling.{name}:{target}",
            config=f"rlcore_plugin_tools.sampling.{name}:{target}Options",
            summary=summary,
            source=source,
            observes=name != "easy_to_hard",
            endless={"rising_level": True, "replay": None}.get(name, False),
        )
        for name, target, summary, source in (
            (
                "success_rate",
                "SuccessRate",
                "draws what is solved about half of the time most often",
                "after Foster and Foerster, Learning to Reason at the Frontier of Learnability (arXiv 2502.12272)",
            ),
            ("easy_to_hard", "EasyToHard", "draws each episode from the easiest prompt to the hardest, by a column", ""),
            ("replay", "Replay", "issues prompts that were not solved again, after some updates", ""),
            ("rising_level", "RisingLevel", "raises the difficulty of data without end after success", ""),
        )
    ]


@hookimpl
def rlcore_plan_arguments() -> str:
    """Offer the function that plans a run from the arguments of ``rlcore.train``."""
    return "rlcore_plugin_tools.arguments.plan_arguments:plan_arguments"


@hookimpl
def rlcore_check_run(config: Any) -> list[str]:
    """Return a sentence for each controller that watches a held-out task which the run does not have."""
    problems, tasks = [], config.eval.eval_dataset
    for name, options in config.run.controller_options.items():
        figure = str(options.get("figure", "")) if name in ("early_stopping", "plateau") else ""
        if figure.startswith("eval/") and figure.split("/")[1] not in tasks:
            has = f"its held-out tasks are {', '.join(tasks)}" if tasks else "it has no held-out task; type --eval-dataset FILE"
            problems.append(f"run.controller_options.{name}.figure = {figure}: the run has no such task; {has}")
    return problems


@hookimpl
def rlcore_check_machine(plan: Plan) -> list[str]:
    """Check devices and Python environments."""
    from rlcore_plugin_tools.machine_check import check_machine

    return check_machine(plan)


@hookimpl
def rlcore_remark_run(facts: RuleContext) -> list[str]:
    """Return a sentence for each legal but noteworthy choice."""
    from rlcore_plugin_tools.remarks.run_remarks import remarks

    return list(remarks(facts))


@hookimpl
def rlcore_open_display(console: Console) -> AbstractContextManager[Progress] | None:
    """Return the output of a notebook's cell, or the panel of a terminal; None if the console is neither."""
    from rlcore_plugin_tools.display.live_display import live_display  # here: it imports numpy
    from rlcore_plugin_tools.display.notebook_display import notebook_display

    # the notebook first: the streams of a kernel have the descriptor of the terminal in which Jupyter was started
    return notebook_display(console) or live_display(console)
