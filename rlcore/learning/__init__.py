"""The mathematics of one update: advantages, weights, losses, and the division of a batch.

Public for plugins: ``from rlcore.learning import ClippedSurrogate``. Names are imported on first use. Therefore this package and its numpy
half (``advantages``, ``aggregation``, ``assemble``, ``overlong_punishment``) can be imported without torch. This package
knows no model, process or file. With ``BatchSettings``, ``assemble_batch``, ``assemble_rewards``, ``prepare_loss``, ``run_estimator``,
``split``, ``SoftOverlong`` and ``PolicyObjective`` a test runs an algorithm on a batch as the core does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.contracts.lazy_names import lazy_names

if TYPE_CHECKING:
    from rlcore.learning.accuracy_at_k import majority_at_k as majority_at_k
    from rlcore.learning.accuracy_at_k import mean_interval as mean_interval
    from rlcore.learning.accuracy_at_k import pass_at_k as pass_at_k
    from rlcore.learning.accuracy_at_k import usual_ks as usual_ks
    from rlcore.learning.advantages import group_mean as group_mean
    from rlcore.learning.advantages import group_size as group_size
    from rlcore.learning.advantages import group_std as group_std
    from rlcore.learning.advantages import group_sum as group_sum
    from rlcore.learning.assemble import BatchSettings as BatchSettings
    from rlcore.learning.assemble import assemble_batch as assemble_batch
    from rlcore.learning.assemble import assemble_rewards as assemble_rewards
    from rlcore.learning.assemble import prepare_loss as prepare_loss
    from rlcore.learning.assemble import run_estimator as run_estimator
    from rlcore.learning.assemble import split as split
    from rlcore.learning.collation import MicroBatch as MicroBatch
    from rlcore.learning.collation import collate as collate
    from rlcore.learning.losses import ClippedOptions as ClippedOptions
    from rlcore.learning.losses import ClippedSurrogate as ClippedSurrogate
    from rlcore.learning.losses import policy_ratio as policy_ratio
    from rlcore.learning.lr_schedule import learning_rate as learning_rate
    from rlcore.learning.micro_batches import plan_micro_batches as plan_micro_batches
    from rlcore.learning.objective import PolicyObjective as PolicyObjective
    from rlcore.learning.overlong_punishment import SoftOverlong as SoftOverlong
else:
    __getattr__, __dir__, __all__ = lazy_names(__name__)
