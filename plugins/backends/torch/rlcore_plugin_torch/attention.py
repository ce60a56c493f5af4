"""Attention over a packed buffer: which tokens see each other, and three ways to compute it.

A ``Pieces`` lists the documents. The general way gathers pieces of similar shape into tiles [b, heads, tq, d] x [b, heads, tk, d] for
scaled_dot_product_attention, and returns the outputs to their places. Its work is that of the documents, never that of the buffer squared.
On CUDA in half precision, one call of variable-length flash attention does the same. On a CPU in full precision, ``shared_attention`` does,
which reads a prompt once. transformers calls ``packed_attention`` in every layer; the plan is the keyword ``attention_plan``, which is made
once per micro-batch.

Axes: ``T`` tokens of the buffer, ``p`` pieces, ``S`` slots of all tiles of a plan (including padding).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface, AttentionMaskInterface

from rlcore_plugin_torch.shared_attention import SharedTiles, has_shared, shared_attention
from rlcore_plugin_torch.slots import Slots, alike
from rlcore_plugin_torch.varlen import Varlen, has_varlen, varlen_attention

__all__ = ["PACKED", "AttentionPlan", "NotPackableError", "Pieces", "Tile", "packed_attention", "tiles"]

PACKED = "rlcore_packed"
"""Name of the attention implementation in transformers; without a plan it is ``sdpa``."""
_QUERIES = 128
"""A longer branch is cut into pieces of this many queries: masked attention also computes hidden pairs, and shorter pieces have fewer of
them."""


@dataclass(frozen=True, slots=True)
class Pieces:
    """p documents of the buffer, int64[p] each.

    The keys of a piece are ``prefix`` tokens from ``prefix_start`` and ``own`` tokens from ``start``. Its queries are the last ``queries``
    of these keys; each sees itself and the keys before it.
    """

    prefix_start: np.ndarray
    prefix: np.ndarray
    start: np.ndarray
    own: np.ndarray
    queries: np.ndarray

    @classmethod
    def of(cls, rows: Sequence[tuple[int, int, int, int]]) -> Pieces:
        """Build the pieces from (prefix_start, prefix, start, own) of each; every own token is a query."""
        prefix_start, prefix, start, own = np.array(rows, np.int64).T
        return cls(prefix_start, prefix, start, own, own)

    @property
    def keys(self) -> np.ndarray:
        """int64[p]: the number of keys of each piece."""
        return self.prefix + self.own

    def take(self, which: np.ndarray) -> Pieces:
        """Return the pieces with these numbers."""
        return Pieces(self.prefix_start[which], self.prefix[which], self.start[which], self.own[which], self.queries[which])

    def cut(self, most: int) -> Pieces:
        """Return pieces of at most ``most`` queries that compute the same attention. Documents without a prefix stay whole."""
        parts = np.where(self.prefix > 0, -(-self.queries // most), 1)
        piece = np.repeat(np.arange(len(parts)), parts)
        begin = (np.arange(len(piece)) - np.repeat(np.cumsum(parts) - parts, parts)) * most
        end = np.where(self.prefix[piece] > 0, np.minimum(begin + most, self.own[piece]), self.own[piece])
        return Pieces(self.prefix_start[piece], self.prefix[piece], self.start[piece], end, end - begin)

    def key_places(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return int64[p, width] places in the buffer of each piece's keys, and bool[p, width]: False for padding, whose place is 0."""
        at = np.arange(width)[None]
        prefix = self.prefix[:, None]
        places = np.where(at < prefix, self.prefix_start[:, None] + at, self.start[:, None] + at - prefix)
        real = at < self.keys[:, None]
        return np.where(real, places, 0), real

    def query_places(self, width: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the same for each piece's queries."""
        at = np.arange(width)[None]
        places = (self.start + self.own - self.queries)[:, None] + at
        real = at < self.queries[:, None]
        return np.where(real, places, 0), real


@dataclass(frozen=True, slots=True)
class Tile:
    """Pieces that one call computes, ``wide_q`` queries by ``wide_k`` keys each, including padding."""

    pieces: Pieces
    wide_q: int
    wide_k: int

    def mask(self, window: int | None) -> np.ndarray | None:
        """Return bool[b, 1, wide_q, wide_k] (True: may see); None for plain causal attention.

        ``window``: the number of tokens that a token sees, including itself; None for all.
        """
        bounded = window is not None and window < self.wide_k
        if not bounded and not self.pieces.prefix.any():
            return None
        keys, queries = self.pieces.keys[:, None, None], self.pieces.queries[:, None, None]
        # A padded query sees the same keys as the last real one: a row that sees nothing would be NaN.
        own = keys - queries + np.minimum(np.arange(self.wide_q)[None, :, None], queries - 1)
        at = np.arange(self.wide_k)[None, None]
        seen = at <= own
        return (seen & (at > own - window) if bounded else seen)[:, None]


def tiles(pieces: Pieces) -> list[Tile]:
    """Put every piece into one tile; pieces of similar shape share a tile."""
    found: list[Tile] = []
    cut = pieces.cut(_QUERIES)
    for kind in (cut.prefix == 0, cut.prefix > 0):
        some = np.flatnonzero(kind)
        for held in alike(cut.queries[some], cut.keys[some]):
            chosen = cut.take(some[held])
            found.append(Tile(chosen, int(chosen.queries.max()), int(chosen.keys.max())))
    return found


@dataclass
class AttentionPlan:
    """The documents of one buffer, and the tensors on the device that depend on them, made on first use and kept for all layers.

    ``windows``: the sliding windows that layers asked for (None: full attention); empty if no layer has used the plan.
    """

    pieces: Pieces
    device: torch.device
    windows: set[int | None] = field(default_factory=set)
    _masks: dict[tuple[int, int | None], torch.Tensor | None] = field(default_factory=dict)

    @cached_property
    def tiles(self) -> list[Tile]:
        """The tiles, one for each call."""
        return tiles(self.pieces)

    @cached_property
    def queries(self) -> Slots:
        """The slots of the tiles' queries, for a tensor of the buffer."""
        return Slots.of([tile.pieces.query_places(tile.wide_q) for tile in self.tiles], self.device)

    @cached_property
    def keys(self) -> Slots:
        """The slots of the tiles' keys; a prompt occurs once for each of its branches."""
        return Slots.of([tile.pieces.key_places(tile.wide_k) for tile in self.tiles], self.device)

    @cached_property
    def varlen(self) -> Varlen:
        """The arguments of variable-length attention."""
        places, real = self.pieces.key_places(int(self.pieces.keys.max()))
        return Varlen.of(self.pieces.queries, self.pieces.keys, Slots.of([(places[real], real[real])], self.device), self.device)

    @cached_property
    def shared(self) -> SharedTiles:
        """The arguments of attention that reads a prompt once for all its branches."""
        pieces = self.pieces
        return SharedTiles.of(pieces.prefix_start, pieces.prefix, pieces.start, pieces.own)

    def attend(self, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float | None, window: int | None) -> torch.Tensor:
        """Queries [T, h, d], keys and values [T, k, d] of the buffer -> [T, h, d]; uses the best way that is available."""
        self.windows.add(window)
        if has_varlen(query, key, value):
            return varlen_attention(query, key, value, self.varlen, scale, window)
        if has_shared(query, key, value) and (window is None or window >= self.shared.longest):
            return shared_attention(query, key, value, self.shared, query.shape[-1] ** -0.5 if scale is None else scale)
        return _tiled(query, key, value, self, scale, window)

    def queries_of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """[T, heads, d] of the buffer -> [b, heads, wide_q, d] of each tile."""
        return self._tensors(tensor, self.queries, [tile.wide_q for tile in self.tiles])

    def keys_of(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """[T, heads, d] of the buffer -> [b, heads, wide_k, d] of each tile."""
        return self._tensors(tensor, self.keys, [tile.wide_k for tile in self.tiles])

    def _tensors(self, tensor: torch.Tensor, slots: Slots, widths: list[int]) -> list[torch.Tensor]:
        sizes = [len(tile.pieces.start) * width for tile, width in zip(self.tiles, widths, strict=True)]
        parts = slots.fill(tensor.flatten(1)).split(sizes)
        return [part.view(-1, width, *tensor.shape[1:]).transpose(1, 2) for part, width in zip(parts, widths, strict=True)]

    def mask(self, number: int, window: int | None) -> torch.Tensor | None:
        """Return the mask of tile ``number``."""
        if (number, window) not in self._masks:
            array = self.tiles[number].mask(window)
            self._masks[number, window] = None if array is None else torch.from_numpy(array).to(self.device)
        return self._masks[number, window]


class NotPackableError(RuntimeError):
    """A layer needs an attention feature that a packed buffer does not support."""


def packed_attention(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    *,
    attention_plan: AttentionPlan | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls in every layer: [1, heads, T, d] -> [1, T, heads, d]; ``sdpa`` if there is no plan.

    Raises NotPackableError for a mask of the layer's own, a bias, soft-capped scores, attention sinks, dropout, or attention in both
    directions.
    """
    if attention_plan is None:
        plain: tuple[torch.Tensor, None] = AttentionInterface()["sdpa"](module, query, key, value, attention_mask, **kwargs)
        return plain
    extra = [name for name in ("softcap", "s_aux", "position_bias", "cache") if kwargs.get(name) is not None]
    extra += ["a mask of its own"] if attention_mask is not None and attention_mask.numel() > 1 else []
    extra += ["both directions"] if kwargs.get("is_causal") is False or kwargs.get("dropout") else []
    if extra:
        raise NotPackableError(f"{type(module).__name__} attends with {extra[0]}")
    flat = _cast(*(tensor[0].transpose(0, 1) for tensor in (query, key, value)))
    return attention_plan.attend(*flat, kwargs.get("scaling"), kwargs.get("sliding_window"))[None], None


def _cast(*tensors: torch.Tensor) -> list[torch.Tensor]:
    """Cast to the precision in which scaled_dot_product_attention would compute under autocast."""
    kind = tensors[0].device.type
    if not torch.is_autocast_enabled(kind):
        return list(tensors)
    return [tensor.to(torch.get_autocast_dtype(kind)) for tensor in tensors]


def _tiled(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, plan: AttentionPlan, scale: float | None, window: int | None
) -> torch.Tensor:
    """[T, heads, d] of the buffer -> [T, heads, d], tile by tile."""
    cut = [plan.queries_of(query), plan.keys_of(key), plan.keys_of(value)]
    grouped = query.shape[1] != key.shape[1]
    outputs = []
    for number, (q, k, v) in enumerate(zip(*cut, strict=True)):
        mask = plan.mask(number, window)
        output = scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, scale=scale, enable_gqa=grouped)
        outputs.append(output.transpose(1, 2).flatten(0, 1).flatten(1))
    return plan.queries.empty(torch.cat(outputs)).view(len(query), query.shape[1], -1)


AttentionInterface.register(PACKED, packed_attention)
AttentionMaskInterface.register(PACKED, AttentionMaskInterface()["sdpa"])
