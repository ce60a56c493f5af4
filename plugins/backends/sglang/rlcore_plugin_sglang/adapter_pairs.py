"""Matrices of an adapter that SGLang computes as one: it takes them in pairs, but an adapter may cover only one of the two."""

from __future__ import annotations

from collections.abc import Mapping

import torch

__all__ = ["with_pairs"]

_PAIRED = {"gate_proj": "up_proj", "up_proj": "gate_proj"}


def with_pairs(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the matrices by PEFT's names, with a zero adapter over each projection whose partner has one. The two have the same shape."""
    found = dict(tensors)
    for name, tensor in tensors.items():
        module = name.removesuffix(".weight").rpartition(".lora_")[0].rpartition(".")[2]
        if module in _PAIRED:
            found.setdefault(name.replace(f".{module}.", f".{_PAIRED[module]}."), torch.zeros_like(tensor))
    return found
