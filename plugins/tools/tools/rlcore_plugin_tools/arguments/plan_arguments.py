"""The arguments of ``rlcore.train`` and its kin as a plan: objects in place of names, rows in place of files."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, PluginKind, UsageError
from rlcore.api.commands import Config, Plan, Registry, RunConfig, plan_run
from rlcore.api.settings import LISTS, UPDATE_PARTS
from rlcore_plugin_tools.arguments.given_rows import are_rows, columns_of, keep_rows, rows_of

__all__ = ["plan_arguments", "translated"]

_SETTING_OF = {
    "reward": "rewards",
    "algorithm": "algorithm.name",
    "algo": "algorithm.name",
    "loss": "algorithm.loss",
    "estimator": "algorithm.estimator",
    "runtime": "run.runtime",
    "trackers": "log.trackers",
    "controllers": "run.controllers",
    "filters": "algorithm.filters",
    "transport": "weights.transport",
    "dataset": "data.dataset",
    "eval_dataset": "eval.eval_dataset",
    "backend": "inference.name",
    "environment": "sampling.environment",
    "sampler": "data.sampler",
    "reward_deadline": "rewards.deadline",
}
"""Arguments by the settings that they stand for; other arguments are keys or paths of settings."""
_ABSENT = "rows.jsonl"
"""The path of rows until their file has a name."""
_NAMED = {
    "rewards": PluginKind.REWARD,
    **{path: kind for path, (kind, _) in LISTS.items()},
    "algorithm.loss": PluginKind.LOSS,
    "algorithm.estimator": PluginKind.ESTIMATOR,
    **UPDATE_PARTS,
    "inference.name": PluginKind.INFERENCE,
    "training.name": PluginKind.TRAINING,
    "run.runtime": PluginKind.RUNTIME,
    "weights.transport": PluginKind.TRANSFER,
    "sampling.conversation": PluginKind.CONVERSATION,
    "sampling.environment": PluginKind.ENVIRONMENT,
    "data.sampler": PluginKind.SAMPLER,
}
"""Settings that name plugins, which may be objects here."""


def plan_arguments(
    given: Mapping[str, Any],
    kept: dict[Path, str],
    *,
    config: Config = (),
    below: Sequence[Path] = (),
    defaults: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    **options: Any,
) -> Plan:
    """Return the plan of arguments of Python. Raises UsageError with all problems that are found.

    :param given: arguments by name, key or path of a setting. Those that are None count as absent.
    :param kept: receives the name of the argument whose rows a file holds, for ``python_errors``.
    :param config: settings below the arguments.
    :param below: files below ``config``. ``defaults``: settings between these files and ``config``.
    :param folder: for the files of rows; None: the folder ``data`` of the project.
    :param options: of ``plan_run``.
    """
    registry = Registry.discover()
    files, values = _sorted(config)
    required = options.pop("require", True)
    problems: list[UsageError] = []
    settings = _settings(registry, given, problems)
    rows = {path: settings.pop(path) for path in ("data.dataset", "eval.eval_dataset") if _has_rows(settings.get(path))}
    absent = {"data.dataset": _ABSENT, "eval.eval_dataset": {"heldout": _ABSENT}}
    settings |= {path: absent[path] for path in rows}

    def plan_of(settings: Mapping[str, Any]) -> Plan:
        flags = {path: value for path, value in settings.items() if path == "rewards.deadline"}  # a flag reaches each reward
        others = {path: value for path, value in settings.items() if path not in flags}
        overrides = [*([defaults] if defaults else []), values, others]
        return plan_run([*below, *files], flags, registry, overrides=overrides, require=required and not problems, **options)

    plan = _sound(plan_of, settings, problems)
    if rows and plan is not None:
        plan = _sound(plan_of, {**settings, **_files(rows, plan, folder, kept, problems)}, problems)
    if problems and plan is not None:
        problems += [UsageError(str(item)) for item in plan.missing if _ABSENT not in str(item)]
    if problems or plan is None:
        raise problems[0] if len(problems) == 1 else ConfigError("; ".join(map(str, problems)))
    return plan


def _sound(plan_of: Callable[[Mapping[str, Any]], Plan], settings: dict[str, Any], problems: list[UsageError]) -> Plan | None:
    """Remove the settings that cannot work, and return the plan of the others, None if there is none. ``problems`` receives the errors."""
    while True:
        try:
            return plan_of(settings)
        except UsageError as error:
            problems.append(error)
            told = str(error)
        culprit = next((key for key in settings if _error_of(plan_of, settings, key) != told), None)
        if culprit is None:
            return None
        del settings[culprit]


def _error_of(plan_of: Callable[[Mapping[str, Any]], Plan], settings: Mapping[str, Any], without: str) -> str:
    try:
        plan_of({key: value for key, value in settings.items() if key != without})
    except UsageError as error:
        return str(error)
    return ""


def translated(registry: Registry, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return arguments of ``rlcore.train`` as plugins translate them, which know the names of other libraries."""
    for _, manager in registry.hooks():
        for found in manager.hook.rlcore_translate_arguments(arguments=arguments):
            arguments = found
    return arguments


def _settings(registry: Registry, given: Mapping[str, Any], problems: list[UsageError]) -> dict[str, Any]:
    """Return arguments as settings. Objects in place of names join the registry; ``problems`` receives the reasons for refusing them."""
    arguments = translated(registry, {name: value for name, value in given.items() if value is not None})
    settings = {_SETTING_OF.get(name, name): value for name, value in arguments.items()}
    held_out = settings.get("eval.eval_dataset")
    if held_out is not None and not isinstance(held_out, Mapping) and not are_rows(held_out):
        settings["eval.eval_dataset"] = {Path(path).name.partition(".")[0]: str(path) for path in _listed(held_out)}
    for path, kind in _NAMED.items():
        if path in settings:
            try:
                names = _names(registry, kind, _listed(settings.pop(path)))
            except UsageError as error:
                problems.append(error)
                continue
            several = {"rewards": [{"name": name} for name in names], **dict.fromkeys(LISTS, names)}
            settings[path] = several.get(path, names[0] if names else "")
    return settings


def _names(registry: Registry, kind: PluginKind, given: Sequence[Any]) -> list[str]:
    """Return the names of parts, after adding objects to the registry. Objects of one name, such as two lambdas, get numbers."""
    named: dict[str, Any] = {}
    for item in given:
        word = item if isinstance(item, str) else registry.add(kind, item)
        if word in named and not isinstance(item, str):
            numbered = f"{word}_{len(named) + 1}"
            registry.add(kind, named[word])  # its name now is that of the new object
            word = registry.add(kind, item, name=numbered)
        named[word] = item
    return list(named)


def _listed(given: Any) -> Sequence[Any]:
    return given if isinstance(given, list | tuple) else [given]


def _has_rows(given: Any) -> bool:
    return any(map(are_rows, given.values())) if isinstance(given, Mapping) else are_rows(given)


def _files(rows: Mapping[str, Any], plan: Plan, folder: Path | None, kept: dict[Path, str], problems: list[UsageError]) -> dict[str, Any]:
    """Write rows to files of the project, and return the settings that name them."""
    config = plan.config
    settings: dict[str, Any] = {}
    folder = folder or Path(config.run.run_dir) / config.run.project / "data"
    for path, given in rows.items():
        argument = path.partition(".")[2]
        several = isinstance(given, Mapping) and path.startswith("eval")
        files: dict[str, str] = {}
        for task, each in given.items() if several else [("heldout", given)]:
            name = f"{argument}[{task!r}]" if several else argument
            if not are_rows(each):
                files[task] = str(each)
                continue
            try:
                found = rows_of(each, name, config.data.max_rows)
                file = keep_rows(found, folder, name)
            except UsageError as error:
                problems.append(error)
                continue
            kept[file], files[task] = name, str(file)
            if config.data.format == "auto" and "data.columns" not in settings:
                needs_gold = any("gt_answer" in spec.requires for spec in plan.reward_specs())
                settings["data.columns"] = columns_of(found[0], plan.registry, config.data, needs_gold=needs_gold)
        settings[path] = files if path.startswith("eval") else files.get("heldout", _ABSENT)
    return settings


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
