"""The plan of an evaluation: the settings of a run that an evaluation reads, and the held-out tasks."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.api import PluginKind, UsageError
from rlcore.api.commands import Missing, Plan, TypedFlag, plan_run, train_flags
from rlcore.api.runtime import used_plugins
from rlcore_plugin_tools.eval.subject import Subject

__all__ = ["checked_evaluation", "has_flag", "of_model", "plan_evaluation", "plugins_of", "reads", "task_names"]

_READ = (
    *("model", "inference", "rewards", "sampling.options", "run.seed", "data.system_prompt", "data.max_prompt_tokens", "data.overlong"),
    *(
        "data.format",
        "data.columns",
        "data.bad_rows",
        "data.max_rows",
        "data.template",
        "data.chat_template",
        "data.tools",
        "data.control_tokens",
    ),
    *("sampling.max_new_tokens", "sampling.stop", "sampling.conversation"),
    *("sampling.max_context_tokens", "sampling.environment", "sampling.environment_options", "schedule.lease_deadline"),
    *("eval.eval_dataset", "eval.eval_samples", "eval.eval_temperature", "eval.eval_max_new_tokens"),
    *("schedule.producer_deadline", "schedule.producer_load_deadline"),
    *("schedule.reward_workers", "schedule.reward_worker_items", "schedule.reward_worker_growth_mb", "schedule.reward_call_memory_mb"),
)
"""Whole sections, and single settings of other sections."""
_TYPED_ONLY = ("data.dataset", "inference.num_inferencer")
"""Settings that count only if typed: a file gives those of a training run, its data and its number of producers."""
_NO_REFERENCE = {"algorithm.kl_coeff": 0.0}
"""Without it, a plan would say that a second model is loaded."""
_OF_TRAINING = ("algorithm.", "log.", "run.", "training.", "weights.")
_TAKING_PART = frozenset(
    {
        *(PluginKind.INFERENCE, PluginKind.CONVERSATION, PluginKind.ENVIRONMENT, PluginKind.DATA, PluginKind.FORMAT),
        *(PluginKind.REWARD, PluginKind.SANDBOX),
    }
)
_SUFFIXES = frozenset({".csv", ".gz", ".json", ".jsonl", ".parquet"})


def reads(path: str) -> bool:
    """Return whether an evaluation reads this setting of a file."""
    return path not in _TYPED_ONLY and any(f"{path}.".startswith(f"{known}.") for known in _READ)


def has_flag(path: str) -> bool:
    """Return whether the setting has a flag here; the model has none, since it is the first argument."""
    return path != "model.model" and (path in _TYPED_ONLY or reads(path))


def plan_evaluation(subject: Subject, args: argparse.Namespace) -> Plan:
    """Return the plan of the typed arguments. It has no training data, trainer, algorithm or transfer, and none of them is ``missing``.

    UsageError if it names no task or no reward, ConfigError and PluginError as for a run.
    """
    flags: dict[str, Any] = train_flags(args)
    files = [*subject.settings, *args.files]
    overrides = of_model(subject)

    def planned() -> Plan:
        return plan_run(files, flags, args.registry, overrides=overrides, require=False, reads=reads)

    typed = flags.pop("data.dataset", None)
    if isinstance(typed, TypedFlag):
        others = planned().config.eval.eval_dataset if "eval.eval_dataset" in flags else {}
        flags["eval.eval_dataset"] = {**others, **task_names(typed.words, others)}
    return checked_evaluation(planned(), subject)


def of_model(subject: Subject) -> dict[str, Any]:
    """Return the settings of an evaluation that name the model."""
    found = {"model.model": subject.model, "model.tokenizer_path": subject.tokenizer}
    return {**_NO_REFERENCE, **{path: value for path, value in found.items() if value is not None}}


def checked_evaluation(plan: Plan, subject: Subject) -> Plan:
    """Return the plan without what only training needs. UsageError if it names no task or no reward."""
    if not plan.config.eval.eval_dataset:
        where = f"the run {subject.run} has no held-out tasks" if subject.run else "no held-out data is given"
        raise UsageError(f"{where}: type -d and the path of a JSONL file")
    if not any(part.plan.config.rewards for part in plan.parts):
        raise UsageError("no reward is given: type -rt and its name (rlcore plugins lists them), or name a file that has [[rewards]]")
    missing = [_advised(item) for item in plan.missing if not item.path.startswith(_OF_TRAINING)]
    return replace(plan, missing=tuple(missing), notes=_notes(plan))


def task_names(paths: tuple[str, ...], taken: Mapping[str, str]) -> dict[str, str]:
    """Return files by the names of their tasks: the stem, with a number if it is already ``taken``."""
    named: dict[str, str] = {}
    for path in paths:
        stem = Path(path.rstrip("/"))
        while stem.suffix in _SUFFIXES:
            stem = stem.with_suffix("")
        name, number = stem.name, 1
        while (task := name if number == 1 else f"{name}-{number}") in {**taken, **named}:
            number += 1
        named[task] = path
    return named


def plugins_of(plan: Plan) -> list[tuple[PluginKind, str]]:
    """Return (kind, name) of every plugin that takes part in the evaluation."""
    return [(kind, name) for kind, name in used_plugins(plan) if kind in _TAKING_PART]


def _advised(item: Missing) -> Missing:
    if item.path != "model.model":
        return item
    return replace(item, command="name the folder of a model, of a checkpoint or of a run, or a hub name org/name")


def _notes(plan: Plan) -> tuple[str, ...]:
    """Return the notes about model, options and plugins. Those about the layout and reproducibility of a run do not apply here."""
    return tuple(note for note in plan.notes if note not in (*plan.derived, str(plan.reproducible)))
