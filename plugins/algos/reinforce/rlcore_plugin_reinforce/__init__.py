"""The REINFORCE family: one algorithm a file, each with its estimator, its recipe, and a comparison with other libraries.

The hooks import the algorithms, so that this module stays light.
"""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import AdvantageSpec, AlgorithmSpec, LossSpec, hookimpl

rlcore_api = "2.0"


@hookimpl
def rlcore_register_advantage_estimators() -> Sequence[AdvantageSpec]:
    """Return the estimators ``reinforce++``, ``reinforce_ppb``, ``remax``, ``opo`` and ``gpg``."""
    from rlcore_plugin_reinforce import gpg, opo, reinforce_pp, reinforce_ppb, remax

    return [reinforce_pp.ESTIMATOR, reinforce_ppb.ESTIMATOR, remax.ESTIMATOR, opo.ESTIMATOR, gpg.ESTIMATOR]


@hookimpl
def rlcore_register_losses() -> Sequence[LossSpec]:
    """Return the loss ``gpg``, the policy gradient without a ratio."""
    from rlcore_plugin_reinforce import gpg

    return [gpg.LOSS]


@hookimpl
def rlcore_register_algorithms() -> Sequence[AlgorithmSpec]:
    """Return the recipes, which have the same names as the estimators."""
    from rlcore_plugin_reinforce import gpg, opo, reinforce_pp, reinforce_ppb, remax

    return [reinforce_pp.RECIPE, reinforce_ppb.RECIPE, remax.RECIPE, opo.RECIPE, gpg.RECIPE]
