"""The GRPO family: one algorithm a file, each with its mathematics, its options and its recipe.

The hooks import what they offer, so that this module stays light.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import AdvantageSpec, AlgorithmSpec, LossSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_advantage_estimators() -> Sequence[AdvantageSpec]:
    """Offer the estimators ``maxrl`` and ``pass_at_k``."""
    from rlcore_plugin_grpo import maxrl, pass_at_k

    return [maxrl.ESTIMATOR, pass_at_k.ESTIMATOR]


@hookimpl
def rlcore_register_losses() -> Sequence[LossSpec]:
    """Offer the losses ``gspo``, ``gmpo``, ``cispo`` and ``sapo``."""
    from rlcore_plugin_grpo import cispo, gmpo, gspo, sapo

    return [gspo.LOSS, gmpo.LOSS, cispo.LOSS, sapo.LOSS]


@hookimpl
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:
    """Offer a recipe for each algorithm."""
    from rlcore_plugin_grpo import cispo, dr_grpo, gmpo, grpo, gspo, maxrl, sapo

    return [module.RECIPE for module in (grpo, dr_grpo, gspo, gmpo, cispo, sapo, maxrl)]
