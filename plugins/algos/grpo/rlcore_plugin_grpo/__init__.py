"""The GRPO family: one algorithm a file, each with its mathematics, its options and its recipe.

The hooks import the algorithms, so that this module stays light.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import AdvantageSpec, AlgorithmSpec, LossSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_advantage_estimators() -> Sequence[AdvantageSpec]:
    """Return the estimators ``maxrl`` and ``pass_at_k``."""
    from rlcore_plugin_grpo import maxrl, pass_at_k

    return [maxrl.ESTIMATOR, pass_at_k.ESTIMATOR]


@hookimpl
def rlcore_register_losses() -> Sequence[LossSpec]:
    """Return the losses ``gspo``, ``gmpo``, ``cispo``, ``sapo``, ``clip_cov`` and ``kl_cov``."""
    from rlcore_plugin_grpo import cispo, clip_cov, gmpo, gspo, kl_cov, sapo

    return [module.LOSS for module in (gspo, gmpo, cispo, sapo, clip_cov, kl_cov)]


@hookimpl
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:
    """Return a recipe for each algorithm."""
    from rlcore_plugin_grpo import cispo, clip_cov, dr_grpo, gmpo, grpo, gspo, kl_cov, maxrl, sapo

    return [module.RECIPE for module in (grpo, dr_grpo, gspo, gmpo, cispo, sapo, maxrl, clip_cov, kl_cov)]
