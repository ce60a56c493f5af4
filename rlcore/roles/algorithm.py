"""The algorithm of an update: from groups to the parts of a batch, each with its weights, that a training backend takes its steps on."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, Need, Objective, RewardDetail
from rlcore.contracts.loss_wrappers import KlEstimator
from rlcore.contracts.types import Group
from rlcore.learning.assemble import BatchSettings, assemble_batch, assemble_rewards, prepare_loss, run_estimator, split
from rlcore.learning.kl import K1, reward_kl
from rlcore.registry.error_context import error_context
from rlcore.roles.part_states import PartWithState

__all__ = ["Algorithm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The settings of an update, from the configuration and the recipe.

    ``old_from_trainer``: the trainer recomputes old log probabilities; otherwise those of the sampler are used. ``kl_in_reward`` is the
    coefficient of the KL penalty in the rewards, 0 for none. ``whole_rollouts``: the objective combines the tokens of a rollout, so that
    its segments stay in one forward."""

    estimator_name: str
    estimator: AdvantageEstimator
    loss_name: str
    loss: Loss
    objective: Objective
    batch: BatchSettings
    seed: int
    updates_per_batch: int = 1
    epochs_per_batch: int = 1
    old_from_trainer: bool = True
    kl_in_reward: float = 0.0
    kl_kind: KlEstimator = field(default_factory=K1)
    whole_rollouts: bool = False
    kept_needs: frozenset[Need] = frozenset()
    """Needs of the beginning, which stay when a controller sets a coefficient to 0: the shares of a batch may be planned already."""

    @property
    def optimizer_steps(self) -> int:
        """The number of optimizer steps of one update."""
        return self.updates_per_batch * self.epochs_per_batch

    @property
    def needs(self) -> frozenset[Need]:
        """The values that must be computed or loaded for it."""
        return self.objective.needs | ({Need.REFERENCE} if self.kl_in_reward else frozenset()) | self.kept_needs

    @property
    def recomputes(self) -> bool:
        """Whether the trainer computes old log probabilities before the update's first step."""
        return self.old_from_trainer and bool(self.optimizer_steps > 1 or self.kl_in_reward or Need.OLD in self.needs)

    @property
    def prepares_entropy(self) -> bool:
        """Whether the entropies of the whole batch are computed before the loss prepares it."""
        return self.loss.prepares_entropy

    @property
    def reads_logprobs(self) -> bool:
        """Whether it reads the sampler's log probabilities of the whole batch, and not only those of a rank's share."""
        return self._prepares or RewardDetail.ROLLOUT_LOGPROBS in self.estimator.needs or bool(self.kl_in_reward)

    @property
    def reads_tokens(self) -> bool:
        """Whether it may read the tokens of the whole batch."""
        return self._prepares and self.loss.reads_tokens

    @property
    def _prepares(self) -> bool:
        """Whether the loss has a ``prepare``, in its class or on the object."""
        return getattr(self.loss.prepare, "__func__", None) is not Loss.prepare

    def assemble(self, groups: Sequence[Group], masked: Collection[int], version: int) -> TrainBatch:
        """Return the batch of an update on these groups, without advantages. Those at the places ``masked`` do not train."""
        return assemble_batch(groups, None, self.batch, masked=masked, version=version, seed=self.seed)

    def advantages(self, groups: Sequence[Group], masked: Collection[int], batch: TrainBatch) -> np.ndarray:
        """Return float32[N]: the estimator's advantages for the batch of these groups."""
        kl = None
        if self.kl_in_reward and batch.old_logprobs is not None and batch.reference_logprobs is not None:
            with error_context(f"KL estimator {type(self.kl_kind).__name__}", "estimating the KL in the reward"):
                kl = reward_kl(batch.old_logprobs, batch.reference_logprobs, self.kl_kind)
        rewards = assemble_rewards(
            groups,
            self.batch,
            masked=masked,
            kl=kl,
            kl_coeff=self.kl_in_reward,
            with_greedy=self.estimator.needs_greedy,
            needs=self.estimator.needs,
        )
        with error_context(f"estimator {self.estimator_name!r}", "estimating advantages"):
            return run_estimator(self.estimator_name, self.estimator, rewards)

    def prepare(self, batch: TrainBatch) -> TrainBatch:
        """Return the batch with the arrays of ``Loss.prepare``."""
        with error_context(f"loss {self.loss_name!r}", "preparing the batch"):
            return prepare_loss(self.loss_name, self.loss, batch)

    def steps(self, batch: TrainBatch) -> list[TrainBatch]:
        """Return the global part of each optimizer step. A part in which nothing can train is left out."""
        epochs = [split(batch, self.batch, updates=self.updates_per_batch, epoch=n) for n in range(self.epochs_per_batch)]
        return [part for parts in epochs for part in parts if part.weights.any()]

    def observe(self, figures: Mapping[str, float]) -> None:
        """Show the figures of an update to the loss."""
        with error_context(f"loss {self.loss_name!r}", "observing an update"):
            self.loss.updated(figures)

    def parts_with_state(self) -> list[tuple[str, PartWithState, str]]:
        """Return its parts that may keep a state between updates: a name for the file, the part, and how errors call it."""
        named = ("estimator", self.estimator, self.estimator_name), ("loss", self.loss, self.loss_name)
        return [(kind, part, f"{kind} {name!r}") for kind, part, name in named]
