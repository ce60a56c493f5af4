"""Turns typed words (names, options, a run file) into rewards that a pool can run, by the same rules and messages as ``rlcore train``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api import PluginKind, RewardSpec, UsageError
from rlcore.api.commands import Registry, RunConfig, TypedFlag, plan_run
from rlcore.api.judging import RewardEntry, reward_entries
from rlcore_plugin_tools.score.option_flags import option_flags

__all__ = ["RewardChoice", "choose_rewards"]


@dataclass(frozen=True, kw_only=True)
class RewardChoice:
    """Rewards in order, the number of worker processes, and the settings around them; ``config.data`` says how rows are read."""

    entries: tuple[RewardEntry, ...]
    workers: int
    config: RunConfig
    label: str = ""

    @property
    def names(self) -> str:
        """The name of the rewards in a table."""
        return self.label or " + ".join(entry.name for entry in self.entries)

    @property
    def specs(self) -> tuple[RewardSpec, ...]:
        """The specs of the rewards."""
        return tuple(entry.spec for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """Return plain values, for ``--json`` and ``--dry-run``."""
        rewards = [
            {
                "name": entry.name,
                "weight": entry.weight,
                "deadline": entry.deadline,
                "options": entry.options.model_dump(mode="json") if entry.options is not None else {},
            }
            for entry in self.entries
        ]
        return {"rewards": rewards, "workers": self.workers}


def choose_rewards(
    name: str | None,
    registry: Registry,
    *,
    config: Path | None = None,
    options: Sequence[str] = (),
    deadline: str | None = None,
    workers: str | None = None,
    data_format: str | None = None,
    columns: str | None = None,
) -> RewardChoice:
    """Return the reward ``name``, as typed after ``--reward`` (registered, ``./my.py:fn``, ``package.module:Name``), otherwise the rewards
    of the run file ``config``. ``options`` are ``key=value``; the other arguments are the words typed after their flags. ConfigError and
    PluginError as in ``train``."""
    if name is None and config is None:
        known = ", ".join(registry.names(PluginKind.REWARD)) or "none is installed"
        raise UsageError(f"no reward is named; type --reward NAME (installed: {known})")
    flags: dict[str, TypedFlag] = {}
    if name is not None:
        flags["rewards"] = TypedFlag("--reward", (name,))
    if deadline is not None:
        flags["rewards.deadline"] = TypedFlag("--deadline", (deadline,))
    if workers is not None:
        flags["schedule.reward_workers"] = TypedFlag("--workers", (workers,))
    if data_format is not None:
        flags["data.format"] = TypedFlag("--data-format", (data_format,))
    if columns is not None:
        flags["data.columns"] = TypedFlag("--columns", (columns,))
    files = [] if config is None else [config]
    flags |= option_flags(options, files, flags, registry)
    plan = plan_run(files, flags, registry, require=False)
    entries = reward_entries(plan)
    if not entries:
        raise UsageError(f"{config}: it has no [[rewards]]; add one, or type --reward NAME")
    for item in plan.missing:
        if item.path == "data.format":
            raise UsageError(str(item))
    return RewardChoice(entries=entries, workers=int(plan.config.schedule.reward_workers), config=plan.config)
