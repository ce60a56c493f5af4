"""``rlcore.train``: a run from a script or a notebook, with losses, estimators, rewards and rows that are Python objects."""

from __future__ import annotations

import gc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.config import Plan
from rlcore.config.machine_check import check_machine
from rlcore.config.python_words import python_errors
from rlcore.contracts.errors import UsageError
from rlcore.contracts.specs import PluginKind
from rlcore.registry.plugin_registry import Registry
from rlcore.registry.targets import load_target

if TYPE_CHECKING:
    from rlcore.runlog.past_runs import PastRun
    from rlcore.runtime import Progress, Summary
    from rlcore.runtime.arguments import Config

__all__ = ["function_of", "make_plan", "train"]


def train(
    config: Config = (),
    *,
    model: str | os.PathLike[str] | None = None,
    dataset: Any = None,
    eval_dataset: Any = None,
    reward: Any = None,
    loss: Any = None,
    estimator: Any = None,
    runtime: Any = None,
    trackers: Any = None,
    progress: Progress | bool | None = None,
    resume: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Summary:
    """Train, and return the summary.

    >>> rows = [{"prompt": "What is 1 + 2?", "answer": "3"}, …]
    >>> rlcore.train(model="Qwen/Qwen2.5-0.5B-Instruct", dataset=rows, reward=lambda item: float(item.columns["answer"] in item.text))

    ``config``: a RunConfig, nested mappings, or the path(s) of TOML files.

    ``dataset``: a path, several paths, or rows: a list of dicts, another iterable with a length, a pandas or polars table, a Hugging Face
    data set (a streamed one with ``max_rows``). Rows are written once to ``RUN_DIR/PROJECT/data``, by their content; all processes, a
    resumed run and evaluations read that file. A row has ``messages``, or a column with a usual name of prompts (``prompt``, ``question``);
    ``columns={"messages": NAME}`` names any other. ``eval_dataset``: the same, or a dict of such by the name of the task.

    ``reward``, ``loss``, ``estimator``, ``runtime`` and ``trackers``: a registered name, a class, an instance, or a function if that kind
    of plugin can be one; rewards and trackers may also be lists. A reward is ``fn(item: RewardInput) -> float | Score``; with
    ``rlcore-plugin-adapters`` also a function as TRL or verl call it, and arguments may have TRL's names.

    ``overrides`` are settings by key or dotted path: ``train_batch_size=8``, ``**{"algorithm.name": "grpo"}``. Settings that name a
    backend (``**{"inference.name": MyEngine}``) may be objects too.

    ``resume``: the folder of a run, or of a project, whose newest run is then used. The run resumes from its newest complete checkpoint,
    with its own settings below those given here. "auto" resumes the newest run of these settings in ``run_dir``, or begins a new run if
    there is none. If that run is finished, its summary is returned.

    ``progress``: by default the run shows itself as on the command line, on standard error, or in the notebook's cell; ``False`` shows
    nothing; a ``Progress`` (``rlcore.api.display``) receives the events of the run.

    Raises UsageError (and its subclasses) before anything is trained, and RunError once the run has started.
    """
    from rlcore.runlog.run_lock import locked
    from rlcore.runtime import resumption

    given = {"model": model, "dataset": dataset, "eval_dataset": eval_dataset, "reward": reward, "loss": loss, "estimator": estimator}
    given |= {"runtime": runtime, "trackers": trackers, **overrides}
    kept: dict[Path, str] = {}
    with python_errors(kept):
        past = None if resume in (None, "auto") else resumption.newest_run(Path(str(resume)))
        plan = _plan(past, config, given, kept)
        if resume == "auto":
            with resumption.auto(plan) as (again, finished):
                return _run(again, progress) if finished is None else resumption.summary_of(finished)
        if past is None:
            return _run(plan, progress)
        with locked(past.root):
            resumption.check_changes(plan, past)
            return _run(resumption.resume_plan(plan, past), progress)


def _run(plan: Plan, progress: Progress | bool | None) -> Summary:
    from rlcore.cli.consoles import RunConsole
    from rlcore.cli.line_display import run_shown
    from rlcore.runtime import Progress, run

    if not isinstance(progress, Progress | bool | None):
        raise UsageError(f"progress is a {type(progress).__name__}; pass a Progress of rlcore.api.display, or False for silence")
    plan = check_machine(plan)
    if plan.missing:
        raise UsageError("; ".join(str(item) for item in plan.missing))
    try:
        if progress is not None and progress is not True:
            return run(plan, progress or None)
        with run_shown(plan, RunConsole(stderr=True)) as display:
            return run(plan, display)
    finally:
        gc.collect()  # the parts of a run refer to each other; a notebook needs their memory for the next run


def function_of(command: str, name: str) -> Any:
    """Return the function for Python that the plugin of a command offers.

    :param name: of the function, for messages.
    :raises PluginError: no installed plugin offers the command, or its plugin has no such function.
    """
    spec = Registry.discover().spec(PluginKind.COMMAND, command)
    function = getattr(spec, "function", "")
    return load_target(function, f"rlcore.{name}: the function {function!r} of command {command!r}")


def make_plan(config: Config = (), **given: Any) -> Plan:
    """Return the plan that ``train`` runs, with the same arguments."""
    kept: dict[Path, str] = {}
    with python_errors(kept):
        return _plan(None, config, given, kept)


def _plan(past: PastRun | None, config: Config, given: Mapping[str, Any], kept: dict[Path, str]) -> Plan:
    """Return the plan. ``past`` is the run whose settings all other settings override."""
    from rlcore.runtime.arguments import plan_arguments
    from rlcore.runtime.resumption import reset_layout

    if past is None:
        return plan_arguments(given, kept, config=config)
    return plan_arguments(given, kept, config=config, below=[past.root / "run.toml"], defaults=reset_layout(past))
