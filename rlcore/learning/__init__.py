"""The mathematics of one update: advantages, weights, losses, and how a batch is cut.

Public for plugins: ``from rlcore.learning import ClippedSurrogate``. Names are imported on first use, so that importing this package,
or its numpy half (``advantages``, ``aggregation``, ``assemble``, ``shaping``), loads no torch. Nothing here knows a model, a process
or a file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.learning.advantages import GroupMean, GroupNorm, group_mean, group_size, group_std, group_sum
    from rlcore.learning.aggregation import Variation, count, token_weights
    from rlcore.learning.assemble import (
        BatchSettings,
        assemble_batch,
        assemble_rewards,
        prepare_loss,
        run_estimator,
        split,
    )
    from rlcore.learning.collation import MicroBatch, collate
    from rlcore.learning.correction import Correction, Mismatch
    from rlcore.learning.kl import Kl, bounded_exp, kl_estimate, kl_penalty
    from rlcore.learning.losses import ClippedOptions, ClippedSurrogate, policy_ratio
    from rlcore.learning.lr_schedule import learning_rate
    from rlcore.learning.micro_batches import plan_micro_batches
    from rlcore.learning.objective import PolicyObjective
    from rlcore.learning.shaping import SoftOverlong, soft_overlong

_HOME = {
    "BatchSettings": "assemble",
    "ClippedOptions": "losses",
    "ClippedSurrogate": "losses",
    "Correction": "correction",
    "GroupMean": "advantages",
    "GroupNorm": "advantages",
    "Kl": "kl",
    "MicroBatch": "collation",
    "Mismatch": "correction",
    "PolicyObjective": "objective",
    "SoftOverlong": "shaping",
    "Variation": "aggregation",
    "assemble_batch": "assemble",
    "assemble_rewards": "assemble",
    "bounded_exp": "kl",
    "collate": "collation",
    "count": "aggregation",
    "group_mean": "advantages",
    "group_size": "advantages",
    "group_std": "advantages",
    "group_sum": "advantages",
    "kl_estimate": "kl",
    "kl_penalty": "kl",
    "learning_rate": "lr_schedule",
    "plan_micro_batches": "micro_batches",
    "policy_ratio": "losses",
    "prepare_loss": "assemble",
    "run_estimator": "assemble",
    "soft_overlong": "shaping",
    "split": "assemble",
    "token_weights": "aggregation",
}

__all__ = [
    "BatchSettings",
    "ClippedOptions",
    "ClippedSurrogate",
    "Correction",
    "GroupMean",
    "GroupNorm",
    "Kl",
    "MicroBatch",
    "Mismatch",
    "PolicyObjective",
    "SoftOverlong",
    "Variation",
    "assemble_batch",
    "assemble_rewards",
    "bounded_exp",
    "collate",
    "count",
    "group_mean",
    "group_size",
    "group_std",
    "group_sum",
    "kl_estimate",
    "kl_penalty",
    "learning_rate",
    "plan_micro_batches",
    "policy_ratio",
    "prepare_loss",
    "run_estimator",
    "soft_overlong",
    "split",
    "token_weights",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
