"""Floating-point operations that a model needs, and the share of a card's peak that a measured time used (MFU).

MFU as in Chowdhery et al., "PaLM: Scaling Language Modeling with Pathways" (arXiv 2204.02311), appendix B: forward and backward of one
token cost ``6 N + 12 L H Q T``, with ``N`` parameters, ``L`` layers, ``H`` heads of dimension ``Q`` and sequences of ``T`` tokens, and a
forward alone a third of that. What is computed twice (gradient checkpointing, a projection done again in the backward pass) counts once,
and attention counts as if it were not causal, so that figures compare with published ones. ``N`` is every parameter that multiplies:
the embedding counts once where it is also the head (tied), and not as a table that is looked up.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PEAKS", "Shape", "generation_flops", "mfu", "peak_of", "update_flops"]

PEAKS = {
    "B200": 2250.0,
    "H200 NVL": 835.0,
    "H200": 989.0,
    "H100 80GB HBM3": 989.0,
    "H100 NVL": 835.0,
    "H100 PCIe": 756.0,
    "A100": 312.0,
    "L40S": 362.0,
    "RTX 4090": 165.2,
    "L4": 121.0,
}
"""Dense bfloat16 TFLOP/s on tensor cores, by NVIDIA's datasheets, for names that contain the key as words; the first that fits counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A decoder-only model: sizes as Hugging Face's Qwen3 configuration calls them."""

    hidden: int
    intermediate: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int

    @property
    def parameters(self) -> int:
        """Entries of all matrices that multiply, the head included; norms, being vectors, are left out."""
        attention = 2 * self.hidden * self.head_dim * (self.heads + self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate) + self.vocabulary * self.hidden


def update_flops(shape: Shape, sequences: int, length: int) -> float:
    """Forward and backward over ``sequences`` of ``length`` tokens."""
    attention = 12 * shape.layers * shape.heads * shape.head_dim * length
    return float(sequences) * length * (6 * shape.parameters + attention)


def generation_flops(shape: Shape, prompts: int, sequences: int, prompt: int, new: int) -> float:
    """``prompts`` computed once each, then ``new`` tokens for each of ``sequences``; a new token attends to all before it."""
    attention = 4 * shape.layers * shape.heads * shape.head_dim
    first = prompts * prompt * (2 * shape.parameters + attention * prompt)
    rest = sequences * (new * 2 * shape.parameters + attention * (new * prompt + new * (new - 1) / 2))
    return float(first + rest)


def peak_of(card: str) -> float | None:
    """TFLOP/s of the card so named, None for one that is not in the table."""
    return next((peak for name, peak in PEAKS.items() if re.search(rf"\b{name}\b", card)), None)


def mfu(flops: float, seconds: float, card: str) -> float | None:
    """The share of the card's peak, None where that is not known."""
    peak = peak_of(card)
    return None if peak is None or seconds <= 0 else round(flops / seconds / (peak * 1e12), 4)
