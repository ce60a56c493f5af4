"""Losses that keep the policy's entropy: Clip-Cov and KL-Cov. The hooks import what they offer, so that this module stays light."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import AlgorithmSpec, LossSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_losses() -> Sequence[LossSpec]:
    """Offer the losses ``clip_cov`` and ``kl_cov``."""
    from rlcore_plugin_entropy import clip_cov, kl_cov

    return [clip_cov.LOSS, kl_cov.LOSS]


@hookimpl
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:
    """Offer the recipes of the same names."""
    from rlcore_plugin_entropy import clip_cov, kl_cov

    return [clip_cov.RECIPE, kl_cov.RECIPE]
