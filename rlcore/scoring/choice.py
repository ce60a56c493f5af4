"""From what was typed (names, options, a run file) to rewards ready for a pool, by the same rules and sentences as ``rlcore train``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.blame import closest
from rlcore.config import Plan, Typed, plan_run
from rlcore.errors import UsageError
from rlcore.registry import Registry
from rlcore.rewards import RewardEntry
from rlcore.specs import PluginKind, RewardSpec

__all__ = ["Choice", "choose_rewards", "reward_entries"]


@dataclass(frozen=True, kw_only=True)
class Choice:
    """Rewards in order, and how many processes judge with them."""

    entries: tuple[RewardEntry, ...]
    workers: int

    @property
    def specs(self) -> tuple[RewardSpec, ...]:
        """What the rewards declare."""
        return tuple(entry.spec for entry in self.entries)

    def as_json(self) -> dict[str, Any]:
        """Plain values, for ``--json`` and ``--dry-run``."""
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
) -> Choice:
    """``name`` as typed after ``--reward`` (registered, ``./my.py:fn``, ``package.module:Name``), else the rewards of the run file
    ``config``; ``options`` are ``key=value``; ``deadline`` and ``workers`` are still words. ConfigError and PluginError as in ``train``."""
    if name is None and config is None:
        known = ", ".join(registry.names(PluginKind.REWARD)) or "none is installed"
        raise UsageError(f"no reward is named; type --reward NAME (installed: {known})")
    flags: dict[str, Typed] = {}
    if name is not None:
        flags["rewards"] = Typed("--reward", (name,))
    if deadline is not None:
        flags["rewards.deadline"] = Typed("--deadline", (deadline,))
    if workers is not None:
        flags["schedule.reward_workers"] = Typed("--workers", (workers,))
    files = [] if config is None else [config]
    if options:
        chosen = plan_run(files, flags, registry, require=False)
        flags |= _options(options, chosen)
    plan = plan_run(files, flags, registry, require=False)
    entries = reward_entries(plan)
    if not entries:
        raise UsageError(f"{config}: it has no [[rewards]]; add one, or type --reward NAME")
    return Choice(entries=entries, workers=int(plan.config.schedule.reward_workers))


def reward_entries(plan: Plan) -> tuple[RewardEntry, ...]:
    """The rewards of a plan; PluginError, with what to install, where one is not here."""
    specs: list[RewardSpec] = []
    for reward in plan.config.rewards:
        spec = plan.registry.spec(PluginKind.REWARD, reward.name)
        assert isinstance(spec, RewardSpec)  # the registry keeps kinds apart
        specs.append(spec)
    return tuple(
        RewardEntry(
            name=spec.name,
            spec=spec,
            weight=reward.weight,
            deadline=float(reward.deadline),  # the plan has resolved auto
            options=options,
            payload=plan.registry.payload(PluginKind.REWARD, reward.name),
            attestation=plan.registry.attest(PluginKind.REWARD, reward.name),
        )
        for reward, spec, options in zip(plan.config.rewards, specs, plan.reward_options, strict=True)
    )


def _options(words: Sequence[str], plan: Plan) -> dict[str, Typed]:
    """``key=value`` words as flags, by setting; ``a.b=1`` and ``a.c=2`` together make the table ``a``."""
    models = [plan.registry.options_model(PluginKind.REWARD, reward.name) for reward in plan.config.rewards]
    known = sorted({key for model in models if model is not None for key in model.model_fields})
    plain: dict[str, Typed] = {}
    nested: dict[str, dict[str, Any]] = {}
    for word in words:
        path, equals, value = word.partition("=")
        key, *inner = path.strip().split(".")
        if not equals or not key:
            raise UsageError(f"--option {word}: write --option key=value, for example --option {known[0] if known else 'scale'}=1")
        if key not in known:
            whose = " and ".join(reward.name for reward in plan.config.rewards)
            listed = f"its options are: {', '.join(known)}" if known else "it has none"
            raise UsageError(f"--option {word}: {whose} has no option {key}{closest(key, known)}; {listed}")
        if inner:
            _put(nested.setdefault(key, {}), inner, value, word)
        else:
            plain[f"rewards.options.{key}"] = Typed(f"--option {key}", (value,))
    if both := [key for key in nested if f"rewards.options.{key}" in plain]:
        raise UsageError(f"--option {both[0]}: it is given as a whole and by its parts; give one of both")
    tables = {f"rewards.options.{key}": Typed(f"--option {key}", (json.dumps(table),)) for key, table in nested.items()}
    return plain | tables


def _put(table: dict[str, Any], keys: Sequence[str], value: str, word: str) -> None:
    for key in keys[:-1]:
        table = table.setdefault(key, {})
        if not isinstance(table, dict):
            raise UsageError(f"--option {word}: {key} is given as a value and as a table; give one of both")
    if isinstance(table.get(keys[-1]), Mapping):
        raise UsageError(f"--option {word}: {keys[-1]} is given as a value and as a table; give one of both")
    table[keys[-1]] = _read(value)


def _read(value: str) -> Any:
    """Inside a table there is no flag's type to go by: JSON where it reads so, else text; the plugin's model checks it."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value
