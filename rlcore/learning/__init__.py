"""The mathematics of one update: advantages, weights, losses, and how a batch is cut.

Public for plugins: ``from rlcore.learning import ClippedSurrogate``. Names are imported on first use, so that importing this package,
or its numpy half (``advantages``, ``aggregation``, ``assemble``, ``shaping``), loads no torch. Nothing here knows a model, a process
or a file.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rlcore.learning.accuracy_at_k import Estimate, majority_at_k, mean_interval, pass_at_k, usual_ks
    from rlcore.learning.advantages import GroupMean, GroupNorm, group_mean, group_size, group_std, group_sum
    from rlcore.learning.aggregation import ConstantLength, SampleLevel, TokenLevel, count, token_weights
    from rlcore.learning.assemble import (
        BatchSettings,
        assemble_batch,
        assemble_rewards,
        prepare_loss,
        run_estimator,
        split,
    )
    from rlcore.learning.collation import MicroBatch, collate
    from rlcore.learning.correction import Decoupled, Masked, SequenceMasked, SequenceTruncated, Truncated
    from rlcore.learning.kl import K1, K2, K3, AbsoluteKl, bounded_exp
    from rlcore.learning.losses import ClippedOptions, ClippedSurrogate, policy_ratio
    from rlcore.learning.lr_schedule import learning_rate
    from rlcore.learning.micro_batches import plan_micro_batches
    from rlcore.learning.objective import PolicyObjective
    from rlcore.learning.overlong_punishment import SoftOverlong, soft_overlong

_HOMES = (
    *(
        "accuracy_at_k",
        "advantages",
        "aggregation",
        "assemble",
        "correction",
        "kl",
        "losses",
        "lr_schedule",
        "micro_batches",
        "objective",
        "overlong_punishment",
    ),
    "collation",  # last, for it loads torch
)

__all__ = [
    "K1",
    "K2",
    "K3",
    "AbsoluteKl",
    "BatchSettings",
    "ClippedOptions",
    "ClippedSurrogate",
    "ConstantLength",
    "Decoupled",
    "Estimate",
    "GroupMean",
    "GroupNorm",
    "Masked",
    "MicroBatch",
    "PolicyObjective",
    "SampleLevel",
    "SequenceMasked",
    "SequenceTruncated",
    "SoftOverlong",
    "TokenLevel",
    "Truncated",
    "assemble_batch",
    "assemble_rewards",
    "bounded_exp",
    "collate",
    "count",
    "group_mean",
    "group_size",
    "group_std",
    "group_sum",
    "learning_rate",
    "majority_at_k",
    "mean_interval",
    "pass_at_k",
    "plan_micro_batches",
    "policy_ratio",
    "prepare_loss",
    "run_estimator",
    "soft_overlong",
    "split",
    "token_weights",
    "usual_ks",
]


def __getattr__(name: str) -> Any:
    if name in __all__:
        for home in _HOMES:
            module = import_module(f"{__name__}.{home}")
            if hasattr(module, name):
                return getattr(module, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
