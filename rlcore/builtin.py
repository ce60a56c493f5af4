"""What the core itself offers, through the same hooks as any plugin: the parts that recipes of every family share."""

from __future__ import annotations

from rlcore.hookspecs import hookimpl
from rlcore.specs import AdvantageSpec, LossSpec

rlcore_api = "1.0"


@hookimpl
def rlcore_register_advantage_estimators() -> list[AdvantageSpec]:
    """Baselines within a group."""
    return [
        AdvantageSpec(
            name="group_norm",
            target="rlcore.learning.advantages:GroupNorm",
            summary="Reward minus the group's mean, over the group's unbiased standard deviation + 1e-4",
            source="DeepSeekMath (arXiv 2402.03300), section 4.1.2, outcome supervision",
        ),
        AdvantageSpec(
            name="group_mean",
            target="rlcore.learning.advantages:GroupMean",
            summary="Reward minus the group's mean",
            source="Understanding R1-Zero-Like Training (arXiv 2503.20783), section 3.2, Dr. GRPO",
        ),
    ]


@hookimpl
def rlcore_register_losses() -> list[LossSpec]:
    """The clipped surrogate of PPO, with separate bounds."""
    return [
        LossSpec(
            name="clipped",
            target="rlcore.learning.losses:ClippedSurrogate",
            config="rlcore.learning.options:ClippedOptions",
            summary="Probability ratio times advantage, clipped to [1 - clip_eps_low, 1 + clip_eps_high]",
            source="PPO (arXiv 1707.06347), equation 7; separate bounds: DAPO (arXiv 2503.14476), section 3.1",
        )
    ]
