"""The rewards of a plan, ready for a pool."""

from __future__ import annotations

from rlcore.config import Plan
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.contracts.types import Outcome
from rlcore.host.sandboxes import ship_sandboxes
from rlcore.rewards.reward_entry import RewardEntry

__all__ = ["reward_entries"]


def reward_entries(plan: Plan) -> tuple[RewardEntry, ...]:
    """The rewards of a plan, in order, as a run uses them; PluginError, with what to install, if one of them, or a sandbox that its
    options name, is not here."""
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
