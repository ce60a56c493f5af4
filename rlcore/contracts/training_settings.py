"""The settings of the optimizer and of adapters, as a trainer receives them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LoraSettings", "OptimizerSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerSettings:
    """The settings of AdamW (Loshchilov and Hutter, arXiv 1711.05101, algorithm 2).

    A step multiplies matrices by 1 - rate * ``weight_decay``; biases and norms do not decay. Epsilon is 1e-8. ``max_grad_norm`` bounds the
    L2 norm over all trained tensors. The learning rate warms up linearly, then follows a cosine to ``min_lr_ratio * learning_rate`` at
    ``total_steps`` steps.
    """

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.95)
    weight_decay: float = 0.01
    max_grad_norm: float = 1.0
    warmup_steps: int = 0
    min_lr_ratio: float = 0.1
    total_steps: int = 1


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
