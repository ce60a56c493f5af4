"""``rlcore.train``: a run from a script or a notebook, with losses, estimators and rewards that are Python objects."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.config import Plan, RunConfig, plan_run
from rlcore.config.machine_check import check_machine
from rlcore.config.plugin_selection import LOSS_WRAPPERS
from rlcore.contracts.errors import ConfigError, UsageError
from rlcore.contracts.specs import PluginKind
from rlcore.registry.plugin_registry import Registry

if TYPE_CHECKING:
    from rlcore.runlog.past_runs import PastRun
    from rlcore.runtime import Progress, Summary

__all__ = ["make_plan", "train"]

Config = RunConfig | Mapping[str, Any] | str | os.PathLike[str] | Sequence[str | os.PathLike[str]]

_NAMED = {
    "algorithm.loss": PluginKind.LOSS,
    "algorithm.estimator": PluginKind.ESTIMATOR,
    **LOSS_WRAPPERS,
    "inference.name": PluginKind.INFERENCE,
    "training.name": PluginKind.TRAINING,
    "run.runtime": PluginKind.RUNTIME,
    "weights.transport": PluginKind.TRANSFER,
    "sampling.conversation": PluginKind.CONVERSATION,
}
"""Settings that name one plugin, which may be an object here."""


def train(
    config: Config = (),
    *,
    loss: Any = None,
    estimator: Any = None,
    reward: Any = None,
    runtime: Any = None,
    trackers: Any = None,
    progress: Progress | None = None,
    resume: str | os.PathLike[str] | None = None,
    **overrides: Any,
) -> Summary:
    """Train, and return the summary.

    ``config``: a RunConfig, nested mappings, or the path(s) of TOML files. ``loss``, ``estimator``, ``reward``, ``runtime`` and
    ``trackers``: a registered name, a class, an instance, or a function if that kind of plugin can be one; rewards and trackers may also be
    lists. ``overrides`` are settings by key or dotted path: ``train_batch_size=8``, ``**{"algorithm.name": "grpo"}``. Settings that name a
    backend (``**{"inference.name": MyEngine}``) may be objects too.

    ``resume``: the folder of a run, or of a project, whose newest run is then used. The run resumes from its newest complete checkpoint,
    with its own settings below those given here. "auto" resumes the newest run of these settings in ``run_dir``, or begins a new run if
    there is none. If that run is finished, its summary is returned.

    Raises UsageError (and its subclasses) before anything is written, and RunError once the run has started.
    """
    from rlcore.runlog.run_lock import locked
    from rlcore.runtime import resumption

    past = None if resume in (None, "auto") else resumption.newest_run(Path(str(resume)))
    objects = {"loss": loss, "estimator": estimator, "reward": reward, "runtime": runtime, "trackers": trackers}
    plan = _made(past, config, objects, overrides)
    if resume == "auto":
        with resumption.auto(plan) as (again, finished):
            return _run(again, progress) if finished is None else resumption.summary_of(finished)
    if past is None:
        return _run(plan, progress)
    with locked(past.root):
        resumption.refuse_if_finished(plan, past)
        return _run(resumption.resume_plan(plan, past), progress)


def _run(plan: Plan, progress: Progress | None) -> Summary:
    from rlcore.runtime import run

    plan = check_machine(plan)
    if plan.missing:
        raise UsageError("; ".join(str(item) for item in plan.missing))
    return run(plan, progress)


def make_plan(
    config: Config = (),
    *,
    loss: Any = None,
    estimator: Any = None,
    reward: Any = None,
    runtime: Any = None,
    trackers: Any = None,
    **overrides: Any,
) -> Plan:
    """Return the plan that ``train`` runs, with the same arguments."""
    objects = {"loss": loss, "estimator": estimator, "reward": reward, "runtime": runtime, "trackers": trackers}
    return _made(None, config, objects, overrides)


def _made(past: PastRun | None, config: Config, objects: Mapping[str, Any], overrides: dict[str, Any]) -> Plan:
    """Return the plan. ``past`` is the run whose settings all other settings override."""
    registry = Registry.discover()
    files, values = _sorted(config)
    named = {"algorithm.loss": objects["loss"], "algorithm.estimator": objects["estimator"], "run.runtime": objects["runtime"]}
    if "transport" in overrides:
        overrides["weights.transport"] = overrides.pop("transport")
    given = {**overrides, **{path: value for path, value in named.items() if value is not None}}
    chosen: dict[str, Any] = {path: _names(registry, kind, given[path])[0] for path, kind in _NAMED.items() if path in given}
    if objects["reward"] is not None:
        chosen["rewards"] = [{"name": name} for name in _names(registry, PluginKind.REWARD, objects["reward"])]
    if objects["trackers"] is not None:
        chosen["log.trackers"] = _names(registry, PluginKind.TRACKER, objects["trackers"])
    if past is None:
        return plan_run(files, {}, registry, overrides=[values, {**overrides, **chosen}])
    from rlcore.runtime.resumption import reset_layout

    return plan_run([past.root / "run.toml", *files], {}, registry, overrides=[reset_layout(past), values, {**overrides, **chosen}])


def _names(registry: Registry, kind: PluginKind, given: Any) -> list[str]:
    items = given if isinstance(given, list | tuple) else [given]
    return [item if isinstance(item, str) else registry.add(kind, item) for item in items]


def _sorted(config: Config) -> tuple[list[Path], Mapping[str, Any]]:
    """Return files and values. For a RunConfig, the values are the settings that were set in it."""
    if isinstance(config, RunConfig):
        return [], config.model_dump(mode="json", exclude_unset=True)
    if isinstance(config, Mapping):
        return [], config
    if isinstance(config, str | os.PathLike):
        return [Path(config)], {}
    if isinstance(config, Sequence) and not isinstance(config, bytes) and all(isinstance(item, str | os.PathLike) for item in config):
        return [Path(item) for item in config], {}
    raise ConfigError(f"config is a {type(config).__name__}; pass a RunConfig, nested mappings, or the path of a TOML file")
