"""The settings of the optimizer and of adapters, as a trainer receives them; and the course of the learning rate."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field

__all__ = ["LearningRateFactor", "LearningRateSchedule", "LoraSettings", "OptimizerSettings"]


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


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """The settings of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSettings:
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
