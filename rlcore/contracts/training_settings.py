"""The settings of the optimizer and of adapters, as a trainer receives them; the course of the learning rate; and optimizers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, ClassVar

from rlcore.contracts.algorithm_specs import OptimizerSpec
from rlcore.contracts.from_spec import FromSpec
from rlcore.contracts.public_members import PublicMembers

if TYPE_CHECKING:
    import torch

__all__ = ["LearningRateFactor", "LearningRateSchedule", "LoraSettings", "OptimizerFactory", "OptimizerSettings"]


class LearningRateSchedule(ABC):
    """The course of the learning rate after the warm-up. It is a pure function of the step, so it has no state to save. Since 2.0."""

    @abstractmethod
    def share(self, step: int, steps: int) -> float:
        """Return the share of the way from the lowest to the peak learning rate: 1 is the peak, 0 is ``min_lr_ratio`` times the peak.

        :param step: the optimizer step, counted from 0 after the warm-up. It may exceed ``steps``.
        :param steps: the optimizer steps of the run after the warm-up, at least 1.
        """


@dataclass(slots=True)
class LearningRateFactor:
    """A factor of the learning rate that controllers change between two updates. Since 2.0."""

    value: float = 1.0


class OptimizerFactory(FromSpec, ABC, described_by=OptimizerSpec):
    """A rule that moves the weights, as torch optimizers over the named parameters of a model. Since 2.0.

    The trainer clips the gradients, skips steps, sets learning rates, and moves, saves and reshards the state of a parameter in
    ``torch.optim.Optimizer.state``: tensors, numbers, texts. A parameter's step depends only on the parameter, its gradient, its state and
    its group, because a trainer steps some parameters at a time. ``OptimizerSpec`` explains ``elementwise``.
    """

    elementwise: ClassVar[bool] = False

    @abstractmethod
    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        """Return optimizers that have each parameter in one group between them.

        Before each step the trainer sets ``lr`` of every group to the learning rate times the group's ``lr_scale`` (1 if it has none).

        :param parameters: the trained parameters by their names in the model; with adapters, the adapters alone. The shapes are those of
            whole tensors. The values can be on several ranks, so they must not be read here.
        :param tables: the names of those that are embeddings or the output head.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings(metaclass=PublicMembers):
    """The settings of ``optimizer``; None: AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2), which is part of the trainer.

    A step multiplies matrices by 1 - rate * ``weight_decay``; biases and norms do not decay. Epsilon is 1e-8. ``max_grad_norm`` bounds the
    L2 norm over all trained tensors. The learning rate warms up linearly, then follows ``schedule`` for the rest of ``total_steps`` steps;
    None: a cosine. Controllers multiply it by ``factor``. ``rlcore.learning.learning_rate`` computes it.
    """

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1
    total_steps: int = 1
    schedule: LearningRateSchedule | None = None
    factor: LearningRateFactor = field(default_factory=LearningRateFactor)
    optimizer: OptimizerFactory | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings(metaclass=PublicMembers):
    """The settings of adapters over frozen weights: ``W + alpha / rank * B A`` with A [rank, columns] and B [rows, rank].

    B is zero at the start. The rank does not change the scale of A's entries.

    ``targets``: ends of the names of linear layers; empty: all but the output head. ``adapter_only``: the engines accept versions of kind
    ADAPTER over the weights of ``TrainingContext.model``. Otherwise, and if the weights below the adapters are others, whole merged weights
    are published. Source: Hu et al., "LoRA" (arXiv 2106.09685), section 4.1.
    """

    rank: int
    alpha: float
    targets: tuple[str, ...] = ()
    adapter_only: bool = False
