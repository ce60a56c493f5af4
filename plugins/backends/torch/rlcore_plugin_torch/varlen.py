"""Attention over a packed buffer by one call of torch's variable-length flash attention: CUDA, half precision.

A trial finds out whether this machine supports it: the same small pieces are computed in both ways.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np
import torch

from rlcore_plugin_torch.slots import Slots

__all__ = ["Varlen", "has_varlen", "varlen_attention"]

_MOST_CHANNELS = 256
"""The largest head size that flash attention supports."""


@dataclass(frozen=True, slots=True)
class Varlen:
    """The arguments of one call.

    ``keys``: the slots of all pieces' keys, without padding. ``cu_queries``, ``cu_keys`` int32[p + 1]: the place at which each piece
    begins. ``most_queries``, ``most_keys``: the largest numbers of one piece.
    """

    keys: Slots
    cu_queries: torch.Tensor
    cu_keys: torch.Tensor
    most_queries: int
    most_keys: int

    @classmethod
    def of(cls, queries: np.ndarray, keys: np.ndarray, slots: Slots, device: torch.device) -> Varlen:
        """Build the arguments from int64[p] lengths. The queries of the pieces follow each other in the buffer."""
        starts = [torch.from_numpy(np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)).to(device) for lengths in (queries, keys)]
        return cls(slots, *starts, int(queries.max()), int(keys.max()))


def has_varlen(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether ``varlen_attention`` supports these [T, heads, d]."""
    half = query.dtype in (torch.bfloat16, torch.float16)
    heads = query.shape[-1] == key.shape[-1] == value.shape[-1] <= _MOST_CHANNELS and query.shape[-1] % 8 == 0
    return query.is_cuda and half and heads and _tried(query.device, query.dtype)


def varlen_attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, varlen: Varlen, scale: float | None, window: int | None
) -> torch.Tensor:
    """[T, heads, d] of the buffer -> [T, heads, d]."""
    from torch.nn.attention.varlen import varlen_attn

    key, value = (varlen.keys.fill(tensor.flatten(1)).view(-1, *tensor.shape[1:]) for tensor in (key, value))
    output: torch.Tensor = varlen_attn(
        query.contiguous(),
        key,
        value,
        varlen.cu_queries,
        varlen.cu_keys,
        varlen.most_queries,
        varlen.most_keys,
        scale=scale,
        # Flash attention aligns the last query with the last key.
        window_size=(-1 if window is None else window - 1, 0),
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output


@cache
def _tried(device: torch.device, dtype: torch.dtype) -> bool:
    """Return whether this gives the outputs and gradients of plain attention.

    The trial has two queries over three keys, and two query heads that share one head of keys.
    """
    generator = torch.Generator("cpu").manual_seed(0)
    query, key, value = (torch.randn(length, heads, 64, generator=generator) for length, heads in ((2, 2), (3, 1), (3, 1)))
    slots = Slots.of([(np.arange(3), np.ones(3, np.bool_))], device)
    plan = Varlen.of(np.array([2]), np.array([3]), slots, device)
    leaves = [tensor.to(device, dtype).requires_grad_() for tensor in (query, key, value)]
    exact = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
    mask = torch.ones(2, 3).tril(1).bool()
    try:
        with torch.enable_grad():
            own = torch.nn.functional.scaled_dot_product_attention(
                *(leaf.transpose(0, 1) for leaf in exact), attn_mask=mask, enable_gqa=True
            )
            given = varlen_attention(*leaves, plan, None, None)
            given.square().sum().backward()  # type: ignore[no-untyped-call]
            own.square().sum().backward()  # type: ignore[no-untyped-call]
    except (ImportError, RuntimeError, NotImplementedError, ValueError, TypeError):
        return False
    pairs = [(given, own.transpose(0, 1)), *((leaf.grad, other.grad) for leaf, other in zip(leaves, exact, strict=True))]
    return all(bool(torch.isclose(ours.float().cpu(), theirs.float(), atol=0.1, rtol=0.05).all()) for ours, theirs in pairs)
