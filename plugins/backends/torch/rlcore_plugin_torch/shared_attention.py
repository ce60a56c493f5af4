"""Attention over a packed buffer on a CPU, which reads each prompt once for all its branches.

A branch has two parts. The first is its own tokens, which are causal, as in every document. The second is its prompt. All tokens of all
branches see it, so the queries of a tree form one matrix against the keys of its prompt. Each part gives outputs and the log of its
softmax's denominator. The outputs are weighted by their shares of the sum of both denominators. The backward of a part takes the outputs
and denominators of the whole, which gives its exact share of the gradients. Liu et al., "Ring Attention with Blockwise Transformers" (arXiv
2310.01889), do the same over devices.

Axes: ``T`` tokens of the buffer, ``h`` query heads, ``k`` heads of keys and values, ``m`` = h / k, ``d`` head size, ``S`` slots of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from rlcore_plugin_torch.slots import alike

__all__ = ["SharedTiles", "has_shared", "shared_attention"]


@dataclass(frozen=True, slots=True)
class _Runs:
    """Stretches of the buffer, each padded to ``width``.

    ``index`` int64[b x width]: the row of each slot, 0 for padding. ``rows`` int64[r]: the rows of the buffer. ``real`` int64[r]: the slots
    that hold these rows.
    """

    width: int
    index: torch.Tensor
    rows: torch.Tensor
    real: torch.Tensor
    padding: torch.Tensor | None
    """int64: the slots that are padding; None if there are none."""

    @classmethod
    def of(cls, starts: np.ndarray, lengths: np.ndarray) -> _Runs:
        """Build the runs from their start rows and lengths, int64[b] each."""
        width = int(lengths.max())
        at = np.arange(width)[None]
        inside = at < lengths[:, None]
        index = np.where(inside, starts[:, None] + at, 0).ravel()
        real, padding = np.flatnonzero(inside), np.flatnonzero(~inside)
        tensors = (torch.from_numpy(array) for array in (index, index[real], real))
        return cls(width, *tensors, padding=torch.from_numpy(padding) if len(padding) else None)

    def take(self, values: torch.Tensor) -> torch.Tensor:
        """[T, x, y] -> [b, x, width, y]"""
        return values.index_select(0, self.index).view(-1, self.width, *values.shape[1:]).transpose(1, 2)

    def back(self, tile: torch.Tensor) -> torch.Tensor:
        """[b, x, width, y] -> [r, x, y], in the order of ``rows``."""
        flat = tile.transpose(1, 2).flatten(0, 1)
        return flat if self.padding is None else flat.index_select(0, self.real)

    def take_denominators(self, values: torch.Tensor) -> torch.Tensor:
        """[T, h] -> [b, h, width]; infinite for padding, so that padding adds nothing to a backward pass."""
        flat = values.index_select(0, self.index)
        if self.padding is not None:
            flat.index_fill_(0, self.padding, float("inf"))
        return flat.view(-1, self.width, values.shape[1]).transpose(1, 2)


class _PrefixTile(NamedTuple):
    """``queries``: the branches of each tree, one after another; ``keys``: its prompt.

    ``mask`` float[b, 1, 1, width] hides the padding of prompts; None if there is no padding.
    """

    queries: _Runs
    keys: _Runs
    mask: torch.Tensor | None


@dataclass(frozen=True, slots=True)
class SharedTiles:
    """``own``: every document and branch by itself; ``prefixes``: branches against their prompts.

    ``longest``: the largest number of keys that a token sees, in tokens of the buffer.
    """

    own: Sequence[_Runs]
    prefixes: Sequence[_PrefixTile]
    longest: int

    @classmethod
    def of(cls, prefix_start: np.ndarray, prefix: np.ndarray, start: np.ndarray, own: np.ndarray) -> SharedTiles:
        """Build the tiles from int64[p] arrays of the pieces.

        Pieces with the same ``prefix_start`` and a prefix are branches of one tree, and are next to each other.
        """
        tiles = [_Runs.of(start[some], own[some]) for some in alike(own, own)]
        branches = np.flatnonzero(prefix > 0)
        trees, first = np.unique(prefix_start[branches], return_index=True)
        many = np.bincount(np.searchsorted(trees, prefix_start[branches]), weights=own[branches]).astype(np.int64)
        begin, length = start[branches][first], prefix[branches][first]
        held = [_prefix_tile(begin[some], many[some], trees[some], length[some]) for some in alike(many, length)] if len(trees) else []
        return cls(tiles, held, int((prefix + own).max()))


def _prefix_tile(begin: np.ndarray, many: np.ndarray, prompt: np.ndarray, length: np.ndarray) -> _PrefixTile:
    queries, keys = _Runs.of(begin, many), _Runs.of(prompt, length)
    if keys.padding is None:
        return _PrefixTile(queries, keys, None)
    mask = torch.zeros(len(keys.index)).index_fill_(0, keys.padding, float("-inf"))
    return _PrefixTile(queries, keys, mask.view(len(begin), 1, 1, keys.width))


def shared_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, tiles: SharedTiles, scale: float) -> torch.Tensor:
    """[T, h, d], [T, k, d] twice -> [T, h, d]."""
    result: torch.Tensor = _SharedAttention.apply(query, key, value, tiles, scale)  # type: ignore[no-untyped-call]
    return result


class _SharedAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, tiles: SharedTiles, scale: float) -> torch.Tensor:
        out, denominators = torch.empty_like(query), query.new_empty(query.shape[:2])
        for runs in tiles.own:
            part = _forward(runs.take(query), _heads(runs.take(key), query), _heads(runs.take(value), query), None, True, scale)
            out.index_copy_(0, runs.rows, runs.back(part[0]))
            denominators.index_copy_(0, runs.rows, runs.back(part[1].unsqueeze(-1)).squeeze(-1))
        for runs, keys, mask in tiles.prefixes:
            part = _forward(_folded(runs.take(query), key), keys.take(key), keys.take(value), mask, False, scale)
            beside = runs.back(_unfolded(part[1].unsqueeze(-1), query)).squeeze(-1)
            own = denominators.index_select(0, runs.rows)
            both = torch.logaddexp(own, beside)
            outputs = out.index_select(0, runs.rows).mul_((own - both).exp_().unsqueeze(-1))
            outputs.addcmul_(runs.back(_unfolded(part[0], query)), (beside - both).exp_().unsqueeze(-1))
            out.index_copy_(0, runs.rows, outputs)
            denominators.index_copy_(0, runs.rows, both)
        ctx.save_for_backward(query, key, value, out, denominators)
        ctx.tiles, ctx.scale = tiles, scale
        return out

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None, None]:
        query, key, value, out, denominators = ctx.saved_tensors
        grads = [torch.empty_like(tensor) for tensor in (query, key, value)]
        for runs in ctx.tiles.own:
            tensors = runs.take(query), _heads(runs.take(key), query), _heads(runs.take(value), query)
            part = _backward(runs.take(grad), tensors, runs.take(out), runs.take_denominators(denominators), None, True, ctx.scale)
            for whole, one in zip(grads, (part[0], _summed(part[1], key), _summed(part[2], key)), strict=True):
                whole.index_copy_(0, runs.rows, runs.back(one))
        for runs, keys, mask in ctx.tiles.prefixes:
            tensors = _folded(runs.take(query), key), keys.take(key), keys.take(value)
            lse = _folded(runs.take_denominators(denominators).unsqueeze(-1), key).squeeze(-1)
            part = _backward(_folded(runs.take(grad), key), tensors, _folded(runs.take(out), key), lse, mask, False, ctx.scale)
            grads[0].index_add_(0, runs.rows, runs.back(_unfolded(part[0], query)))
            for whole, one in zip(grads[1:], part[1:], strict=True):
                whole.index_add_(0, keys.rows, keys.back(one))
        return *grads, None, None


def _heads(tile: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """[b, k, w, d] -> [b, h, w, d]: repeat each head of keys for all query heads that share it."""
    many = query.shape[1] // tile.shape[1]
    return tile if many == 1 else tile.repeat_interleave(many, dim=1)


def _summed(tile: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """[b, h, w, d] -> [b, k, w, d]: return the gradient of ``_heads``."""
    shared = key.shape[1]
    return tile if tile.shape[1] == shared else tile.unflatten(1, (shared, -1)).sum(2)


def _folded(tile: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """[b, h, w, x] -> [b, k, m x w, x]: query heads that share keys become further rows."""
    return tile if tile.shape[1] == key.shape[1] else tile.unflatten(1, (key.shape[1], -1)).flatten(2, 3)


def _unfolded(tile: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
    """Undo ``_folded``."""
    heads = query.shape[1]
    return tile if tile.shape[1] == heads else tile.unflatten(2, (heads // tile.shape[1], -1)).flatten(1, 2)


def _forward(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor | None, causal: bool, scale: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the outputs [b, h, q, d] and the logs of the denominators [b, h, q]."""
    result: tuple[torch.Tensor, torch.Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(
        query, key, value, 0.0, causal, attn_mask=None if mask is None else mask.to(query.dtype), scale=scale
    )
    return result


def _backward(
    grad: torch.Tensor,
    tensors: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    out: torch.Tensor,
    denominators: torch.Tensor,
    mask: torch.Tensor | None,
    causal: bool,
    scale: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    result: tuple[torch.Tensor, torch.Tensor, torch.Tensor] = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, *tensors, out, denominators, 0.0, causal, attn_mask=None if mask is None else mask.to(grad.dtype), scale=scale
    )
    return result


def has_shared(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> bool:
    """Return whether ``shared_attention`` supports these [T, heads, d]."""
    alike = query.shape[-1] == key.shape[-1] == value.shape[-1] and query.shape[1] % key.shape[1] == 0
    exact = query.dtype == key.dtype == value.dtype and query.dtype in (torch.float32, torch.float64)
    return query.device.type == "cpu" and exact and alike and _tried(query.dtype)


@cache
def _tried(dtype: torch.dtype) -> bool:
    """Return whether this torch has the two operations, which are private to torch, and they give the results of plain attention."""
    generator = torch.Generator().manual_seed(0)
    pieces = np.array([(0, 0, 0, 3), (0, 3, 3, 2), (0, 3, 5, 1), (6, 0, 6, 2), (6, 2, 8, 1)])
    query, key, value = (torch.randn(9, heads, 8, generator=generator, dtype=dtype) for heads in (2, 1, 1))
    sees = torch.zeros(9, 9, dtype=torch.bool)
    for prefix_start, prefix, start, own in pieces.tolist():
        sees[start : start + own, start : start + own] = torch.ones(own, own).tril().bool()
        sees[start : start + own, prefix_start : prefix_start + prefix] = True
    found = []
    for shared in (True, False):
        leaves = [tensor.clone().requires_grad_() for tensor in (query, key, value)]
        try:
            with torch.enable_grad():
                if shared:
                    out = shared_attention(*leaves, SharedTiles.of(*pieces.T), 0.5)
                else:
                    swapped = (leaf.transpose(0, 1)[None] for leaf in leaves)
                    out = scaled_dot_product_attention(*swapped, attn_mask=sees, scale=0.5, enable_gqa=True)[0].transpose(0, 1)
                out.square().sum().backward()
        except (RuntimeError, AttributeError, TypeError):
            return False
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    return all(torch.allclose(one, other, atol=1e-4) for one, other in zip(*found, strict=True))
