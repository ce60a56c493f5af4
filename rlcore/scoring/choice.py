"""From what was typed (names, options, a run file) to rewards ready for a pool, by the same rules and sentences as ``rlcore train``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.config import Plan, Typed, plan_run
from rlcore.contracts.errors import UsageError
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.contracts.types import Outcome
from rlcore.host.registry import Registry
from rlcore.host.sandboxes import ship_sandboxes
from rlcore.rewards import RewardEntry
from rlcore.scoring.option_flags import option_flags

__all__ = ["RewardChoice", "choose_rewards", "reward_entries"]


@dataclass(frozen=True, kw_only=True)
class RewardChoice:
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
) -> RewardChoice:
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
    flags |= option_flags(options, files, flags, registry)
    plan = plan_run(files, flags, registry, require=False)
    entries = reward_entries(plan)
    if not entries:
        raise UsageError(f"{config}: it has no [[rewards]]; add one, or type --reward NAME")
    return RewardChoice(entries=entries, workers=int(plan.config.schedule.reward_workers))


def reward_entries(plan: Plan) -> tuple[RewardEntry, ...]:
    """The rewards of a plan, as a run and ``rlcore score`` use them; PluginError, with what to install, if one of them, or a sandbox
    that its options name, is not here."""
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
            sandboxes=ship_sandboxes(options, plan.registry),
            policy={Outcome(outcome): action for outcome, action in reward.policy},
            budget={Outcome(outcome): share for outcome, share in reward.budget if share is not None},
        )
        for reward, spec, options in zip(plan.config.rewards, specs, plan.reward_options, strict=True)
    )
