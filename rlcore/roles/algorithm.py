"""The algorithm of an update: from groups to the parts of a batch, each with its weights, that a training backend takes its steps on.

A run with several sources has a ``MixedAlgorithm``, which applies the algorithm of each source to the groups of that source.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar

import numpy as np

from rlcore.contracts.batches import TrainBatch, token_index
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, Need, Objective, RewardDetail
from rlcore.contracts.loss_wrappers import KlEstimator
from rlcore.contracts.types import Group
from rlcore.learning.assemble import BatchSettings, assemble_batch, assemble_rewards, prepare_loss, run_estimator, split, weighed
from rlcore.learning.kl import K1, reward_kl
from rlcore.learning.mixed_objective import MixedObjective, extra_of, in_source
from rlcore.registry.error_context import error_context
from rlcore.roles.part_states import PartWithState
from rlcore.roles.update_figures import figure_of

__all__ = ["Algorithm", "MixedAlgorithm"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Algorithm:
    """The settings of an update, from the configuration and the recipe.

    ``old_from_trainer``: the trainer recomputes old log probabilities; otherwise those of the sampler are used. ``kl_in_reward`` is the
    coefficient of the KL penalty in the rewards, 0 for none. ``whole_rollouts``: the objective combines the tokens of a rollout, so that
    its segments stay in one forward."""

    names: ClassVar[tuple[str, ...]] = ()
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
        return _steps(batch, self.batch, self.updates_per_batch, self.epochs_per_batch)

    def observe(self, figures: Mapping[str, float]) -> None:
        """Show the figures of an update to the loss."""
        with error_context(f"loss {self.loss_name!r}", "observing an update"):
            self.loss.updated(figures)

    def parts_with_state(self) -> list[tuple[str, PartWithState, str]]:
        """Return its parts that may keep a state between updates: a name for the file, the part, and how errors call it."""
        named = ("estimator", self.estimator, self.estimator_name), ("loss", self.loss, self.loss_name)
        return [(kind, part, f"{kind} {name!r}") for kind, part, name in named]


def _steps(batch: TrainBatch, settings: BatchSettings | Sequence[BatchSettings], updates: int, epochs: int) -> list[TrainBatch]:
    parts = [part for epoch in range(epochs) for part in split(batch, settings, updates=updates, epoch=epoch)]
    return [part for part in parts if part.weights.any()]


@dataclass(frozen=True, slots=True)
class MixedAlgorithm:
    """The algorithm of each source of a run, by the number of the source (``Group.source_index``). It has the methods of ``Algorithm``.

    Estimator, ``prepare`` and objective of a source see its groups alone. The weights of a source are those of its own aggregation over
    its part of an optimizer step, times its share of the groups of that step. The sources have one seed, and take the same steps.

    ``names``: the name of each source."""

    names: tuple[str, ...]
    algorithms: tuple[Algorithm, ...]

    @property
    def needs(self) -> frozenset[Need]:
        """The values that must be computed or loaded for some source."""
        return frozenset().union(*(each.needs for each in self.algorithms))

    @property
    def objective(self) -> MixedObjective:
        """The sum of the objectives of the sources."""
        return MixedObjective(self.names, [each.objective for each in self.algorithms])

    @property
    def old_from_trainer(self) -> bool:
        """As in ``Algorithm``; all sources have the same."""
        return self.algorithms[0].old_from_trainer

    @property
    def recomputes(self) -> bool:
        """Whether some source needs old log probabilities of the trainer."""
        return any(each.recomputes for each in self.algorithms)

    @property
    def prepares_entropy(self) -> bool:
        """Whether the loss of some source prepares the batch with entropies."""
        return any(each.prepares_entropy for each in self.algorithms)

    @property
    def reads_logprobs(self) -> bool:
        """Whether some source reads the sampler's log probabilities of the whole batch."""
        return any(each.reads_logprobs for each in self.algorithms)

    @property
    def reads_tokens(self) -> bool:
        """Whether some source may read the tokens of the whole batch."""
        return any(each.reads_tokens for each in self.algorithms)

    @property
    def whole_rollouts(self) -> bool:
        """Whether the objective of some source combines the tokens of a rollout."""
        return any(each.whole_rollouts for each in self.algorithms)

    @property
    def _settings(self) -> tuple[BatchSettings, ...]:
        return tuple(each.batch for each in self.algorithms)

    def assemble(self, groups: Sequence[Group], masked: Collection[int], version: int) -> TrainBatch:
        """Return the batch of an update, as ``Algorithm.assemble``, with the ``source`` of each rollout."""
        return assemble_batch(groups, None, self._settings, masked=masked, version=version, seed=self.algorithms[0].seed)

    def advantages(self, groups: Sequence[Group], masked: Collection[int], batch: TrainBatch) -> np.ndarray:
        """Return float32[N]: the advantages of each source's estimator for its own groups."""
        values = np.zeros(int(batch.offsets[-1]), np.float32)
        for number, index, part in self._parts(batch):
            places = [place for place, group in enumerate(groups) if group.source_index == number]
            hidden = [count for count, place in enumerate(places) if place in masked]
            with in_source(self.names[number]):
                values[index] = self.algorithms[number].advantages([groups[place] for place in places], hidden, part)
        return values

    def prepare(self, batch: TrainBatch) -> TrainBatch:
        """Return the batch with the arrays of each source's ``Loss.prepare`` for its own part, 0 elsewhere."""
        extras = {}
        for number, index, part in self._parts(batch):
            with in_source(self.names[number]):
                prepared = self.algorithms[number].prepare(part).extras
            for name, values in prepared.items():
                extras[extra_of(number, name)] = whole = np.zeros_like(batch.advantages)
                whole[index] = values
        return replace(batch, extras=extras, entropy=None)

    def _parts(self, batch: TrainBatch) -> Iterator[tuple[int, np.ndarray, TrainBatch]]:
        """Yield the number of each source in the batch, the places of its tokens, and its part as the batch of a run without others."""
        assert batch.source is not None
        for number in np.unique(batch.source).tolist():
            rows = np.flatnonzero(batch.source == number)
            part = batch.take(rows)
            part = replace(part, group=np.unique(part.group, return_inverse=True)[1], source=None)
            yield number, token_index(batch.offsets, rows), weighed(part, self._settings[number])

    def steps(self, batch: TrainBatch) -> list[TrainBatch]:
        """Return the global part of each optimizer step, as ``Algorithm.steps``. A step divides the groups of all sources."""
        first = self.algorithms[0]
        return _steps(batch, self._settings, first.updates_per_batch, first.epochs_per_batch)

    def observe(self, figures: Mapping[str, float]) -> None:
        """Show the figures of an update to each loss: its source's own, and those of the optimizer."""
        named = {figure_of(name): value for name, value in figures.items()}
        told = {figure for source, figure in named if source}
        for source, algorithm in zip(self.names, self.algorithms, strict=True):
            own = {figure: value for (of, figure), value in named.items() if of == source or (not of and figure not in told)}
            with in_source(source):
                algorithm.observe(MappingProxyType(own))

    def parts_with_state(self) -> list[tuple[str, PartWithState, str]]:
        """Return those of all sources, as ``Algorithm.parts_with_state``. The name of a file ends in the number of the source."""
        return [
            (f"{file}-{number}", part, f"{who} of source {name!r}")
            for number, (name, algorithm) in enumerate(zip(self.names, self.algorithms, strict=True))
            for file, part, who in algorithm.parts_with_state()
        ]
