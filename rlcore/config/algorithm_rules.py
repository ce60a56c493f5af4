"""Rules between the parts of an algorithm: filters, rewards, losses, and what the trainer computes for them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.config.layers import get_path
from rlcore.contracts.reward_name import is_reward_name
from rlcore.contracts.specs import LossSpec
from rlcore.registry.error_context import closest

if TYPE_CHECKING:
    from rlcore.config.rules import RuleContext

__all__ = [
    "dynamic_needs_filter",
    "filter_has_accuracy",
    "filter_range_order",
    "range_without_groups",
    "rewards_named_exist",
    "trainer_has_entropies",
]


def range_without_groups(bounds: tuple[float, float] | None) -> bool:
    """Return whether no accuracy, from 0 to 1, is strictly between the two."""
    return bounds is not None and (bounds[0] >= bounds[1] or bounds[0] >= 1.0 or bounds[1] <= 0.0)


def filter_range_order(facts: RuleContext) -> str | None:
    """Refuse a range that no accuracy is in."""
    bounds = facts.config.algorithm.filter_range
    if bounds is None or not range_without_groups(bounds):
        return None
    if bounds[0] < bounds[1]:
        return f"{facts.cite('algorithm.filter_range')} lets no group pass: an accuracy is between 0 and 1; type --filter-range 0.01 0.99"
    low, high = sorted(bounds)
    example = f"{low:g} {high:g}" if low < high else "0.01 0.99"
    return (
        f"{facts.cite('algorithm.filter_range')} lets no group pass: the low end must be below the high end; type --filter-range {example}"
    )


def dynamic_needs_filter(facts: RuleContext) -> str | None:
    """Refuse replacing filtered groups without a filter."""
    algorithm = facts.config.algorithm
    if not algorithm.dynamic_batching or algorithm.filters or algorithm.filter_range is not None:
        return None
    return (
        f"{facts.cite('algorithm.dynamic_batching')} replaces filtered groups, and no filter is set; type --filter-range 0.01 0.99, or "
        "--no-dynamic-batching"
    )


def filter_has_accuracy(facts: RuleContext) -> str | None:
    """Refuse a range of an accuracy that no reward gives."""
    algorithm = facts.config.algorithm
    if algorithm.filter_range is None or not facts.config.rewards or not facts.all_rewards_known:
        return None
    givers = [name for name, spec in facts.rewards() if spec.gives_accuracy]
    if algorithm.filter_by == "accuracy":
        if givers:
            return None
        names = " and ".join(name for name, _ in facts.rewards())
        return (
            f"{facts.cite('algorithm.filter_range')} filters on accuracy, which {names} does not give; choose another reward "
            "(-rt), or type --filter-range none"
        )
    if algorithm.filter_by in givers:
        return None
    choice = f"type --filter-by {givers[0]}" if givers else "type --filter-range none"
    return f"{facts.cite('algorithm.filter_by')} must be accuracy or a chosen reward that gives accuracy; {choice}"


def trainer_has_entropies(facts: RuleContext) -> str | None:
    """Refuse a loss that prepares with entropies if the trainer does not compute them."""
    loss, trainer = facts.chosen.spec("algorithm.loss"), facts.chosen.spec("training.name")
    needed = isinstance(loss, LossSpec) and loss.prepares_entropy
    if not needed or trainer is None or trainer.capabilities is None or trainer.capabilities.entropies:
        return None
    return (
        f"{facts.cite('algorithm.loss')} needs the entropy of each token before the update (prepares_entropy), and training backend "
        f"{trainer.name} does not compute it (capabilities.entropies is False); name another --trainer, or another --loss"
    )


def rewards_named_exist(facts: RuleContext) -> str | None:
    """Refuse an option of type ``RewardName`` that names no reward of the run."""
    if not facts.config.rewards or not facts.all_rewards_known:
        return None
    names = [spec.name for _, spec in facts.rewards()]
    for part in facts.chosen:
        for key, field in part.model.model_fields.items() if part.model else ():
            if not is_reward_name(field.annotation, field.metadata):
                continue
            path = facts.chosen.place(part, key)
            value = get_path(facts.config, path)
            for name in [value] if isinstance(value, str) else value or ():
                if name not in names:
                    return (
                        f"{facts.cite(path)} must name a reward of the run, for {part.label}{closest(name, names)}; its rewards are: "
                        f"{', '.join(names)}"
                    )
    return None
