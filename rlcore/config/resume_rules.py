"""Settings that identify a run, and settings that a resumed run must not change."""

from __future__ import annotations

import tomllib
from pathlib import Path

from pydantic import ValidationError

from rlcore.config.file_paths import relocated
from rlcore.config.layers import as_typed, get_path
from rlcore.config.plan import Plan
from rlcore.config.run_config import RunConfig
from rlcore.contracts.errors import ConfigError
from rlcore.host.bounded_reading import read_document

__all__ = ["RATE_SETTINGS", "changed_settings", "check_resumable", "other_settings", "settings_of"]

_FIXED = (
    *("sources", "weight", "run.seed", "data.dataset", "data.format", "data.columns"),
    *("data.system_prompt", "data.max_prompt_tokens", "data.overlong", "data.shuffle", "data.sampler", "data.bad_rows", "data.max_rows"),
    *("data.template", "data.chat_template", "data.tools", "data.control_tokens"),
    *("training.train_batch_size", "sampling.num_generations", "model.model", "model.tokenizer_path", "model.reference"),
    *("training.optimizer", "training.lora_rank", "training.lora_alpha", "training.lora_targets"),
    *("training.model_hook", "training.model_hook_options"),
    *("run.project", "log.save_dir", "log.rollout_save_dir", "eval.eval_save_dir"),
)
"""Checkpoints count prompts in the order that these settings define, and hold the weights that they name. The last line locates the run."""
_TABLES = ("data", "sampling", "algorithm", "eval")
RATE_SETTINGS = frozenset(
    (
        *("training.learning_rate", "training.warmup_steps", "training.min_lr_ratio"),
        *("training.lr_schedule", "training.lr_schedule_options", "run.max_steps", "run.num_episodes"),
    )
)
"""Settings that define the learning rate of each update."""
_SURROUNDINGS = (
    *("run.run_dir", "run.master_address", "run.master_port", "run.ray_dir", "run.enable_profiling"),
    *("log.save_interval", "log.keep_checkpoints", "log.keep_best", "log.best_by", "log.private"),
    *("log.rollout_interval", "log.rollout_share", "log.rollout_max_mb"),
    *("log.trackers", "log.options", "log.observers"),
    *("schedule.producer_restarts", "schedule.producer_deadline", "schedule.producer_load_deadline", "schedule.max_restores"),
    *("schedule.heartbeat_deadline", "schedule.lease_deadline", "schedule.trainer_deadline"),
    *("schedule.reward_workers", "schedule.reward_worker_items", "schedule.reward_worker_growth_mb", "schedule.reward_call_memory_mb"),
    *("weights.deadline", "weights.bucket_mb", "log.export_dtype"),
)
"""Where a run is, how it is watched, and its deadlines. A command means the same run whatever these are. Some depend on the machine, and a
scheduler may choose another machine each time."""


def settings_of(run: Path) -> RunConfig:
    """Return the resolved configuration of a run folder. Raises ConfigError if its ``run.toml`` cannot be read."""
    path = run / "run.toml"
    try:
        return _read(read_document(path).decode("utf-8"))
    except (OSError, ValueError, RecursionError) as error:  # a ValidationError is a ValueError
        first = error.errors()[0]["msg"] if isinstance(error, ValidationError) else error
        raise ConfigError(f"{path} cannot be read ({first}), so the run cannot be resumed") from None


def changed_settings(plan: Plan, run: RunConfig) -> dict[str, tuple[str, str]]:
    """Return the settings that differ between a plan and a run, by path ``section.key``: the value of the run and that of the plan.

    Those of a source have the path ``sources.NAME.section.key``; if the names differ, the path is ``sources``. Values are written as after
    a flag. Paths of files are absolute."""
    now = _read(plan.to_toml())
    changed = {
        path: (as_typed(get_path(run, path)), as_typed(get_path(now, path)))
        for section in RunConfig.model_fields
        if section != "sources"
        for key in ([""] if section == "rewards" else type(getattr(run, section)).model_fields)
        if get_path(now, path := f"{section}.{key}".rstrip(".")) != get_path(run, path)
    }
    return changed | _changed_sources(now, run)


def _changed_sources(now: RunConfig, run: RunConfig) -> dict[str, tuple[str, str]]:
    names, those = ([source.name for source in config.sources] for config in (now, run))
    if names != those:
        return {"sources": (as_typed(those), as_typed(names))}
    changed: dict[str, tuple[str, str]] = {}
    for old, new in zip(run.sources, now.sources, strict=True):
        tables = ("weight", "rewards", *(f"{name}.{key}" for name in _TABLES for key in {**getattr(old, name), **getattr(new, name)}))
        changed |= {
            f"sources.{new.name}.{path}": (as_typed(get_path(old, path)), as_typed(get_path(new, path)))
            for path in tables
            if get_path(old, path) != get_path(new, path)
        }
    return changed


def other_settings(plan: Plan, run: RunConfig) -> dict[str, str]:
    """Return the settings that make a plan another run than ``run``, with the plan's values as typed after a flag. Settings of the
    surroundings do not count."""
    return {path: new for path, (_, new) in changed_settings(plan, run).items() if path not in _SURROUNDINGS}


def check_resumable(plan: Plan, run: RunConfig, new_run: str) -> None:
    """Raise ConfigError if the plan changes a setting that a resumed run must keep.

    :param new_run: the command of a new run with the changed settings."""
    for path, (old, new) in changed_settings(plan, run).items():
        own = path.split(".", 2)[-1] if path.startswith("sources.") else path
        if own in _FIXED:
            cited = plan.cite(path) if own == path and path in plan.origins else f"{path} = {new}"
            raise ConfigError(f"{cited}: a resumed run keeps its {path}, which is {old}; leave it out, or begin a new run: {new_run}")


def _read(text: str) -> RunConfig:
    return RunConfig.model_validate(relocated(tomllib.loads(text), RunConfig, lambda path, kind: path, none="none"))
