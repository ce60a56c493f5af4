"""Copy rows of a flat buffer into slots and back, differentiably and deterministically; the backward pass of each copy is also a gather.

``alike`` groups the documents of the buffer that are similar enough for one tile of slots.

Axes: ``T`` rows of the buffer, ``S`` slots (some of them padding), ``C`` channels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

__all__ = ["Slots", "alike"]

_WASTE, _FREE = 0.1, 4096
"""A tile may hold this share of padded pairs, plus this number of them: one more call costs as much as these."""


def alike(queries: np.ndarray, keys: np.ndarray) -> Iterator[np.ndarray]:
    """Yield int64 arrays: the numbers of the documents of each tile.

    ``queries``, ``keys`` int64[p]: the size of each document. A tile holds documents of neighbouring sizes whose padding is small compared
    with their own pairs.
    """
    order = np.lexsort((-keys, -queries))
    start, pairs, deepest = 0, 0, 0
    for place, (wide, deep) in enumerate(zip(queries[order].tolist(), keys[order].tolist(), strict=True)):
        deepest = max(deepest, deep)
        held = deepest * int(queries[order[start]]) * (place + 1 - start)
        if place > start and held - pairs - wide * deep > _WASTE * held + _FREE:
            yield order[start:place]
            start, pairs, deepest = place, 0, deep
        pairs += wide * deep
    if len(order):
        yield order[start:]


@dataclass(frozen=True, slots=True)
class Slots:
    """The slots of a flat buffer.

    ``index`` int64[S]: the row that each slot copies, 0 for padding. ``order`` int64: the slots that are not padding, row after row.
    ``offsets`` int64[T]: the place in ``order`` at which the slots of each row begin. ``single``: each row has exactly one slot.
    """

    index: torch.Tensor
    order: torch.Tensor
    offsets: torch.Tensor
    single: bool

    @classmethod
    def of(cls, places: Sequence[tuple[np.ndarray, np.ndarray]], device: torch.device) -> Slots:
        """Build the slots from pairs of arrays (row, whether it is not padding), of any shape, flattened one after another.

        Every row has a slot.
        """
        index = np.concatenate([row.ravel() for row, _ in places])
        real = np.flatnonzero(np.concatenate([some.ravel() for _, some in places]))
        counts = np.bincount(index[real])
        order = real[np.argsort(index[real], kind="stable")]
        tensors = (torch.from_numpy(array).to(device) for array in (index, order, np.cumsum(counts) - counts))
        return cls(*tensors, single=bool((counts == 1).all()))

    def fill(self, rows: torch.Tensor) -> torch.Tensor:
        """[T, C] -> [S, C]: fill the slots; padding holds row 0."""
        filled: torch.Tensor = _Fill.apply(rows, self)  # type: ignore[no-untyped-call]
        return filled

    def empty(self, filled: torch.Tensor) -> torch.Tensor:
        """[S, C] -> [T, C]: take each row from its only slot. Raises ValueError if a row has several."""
        if not self.single:
            raise ValueError("a row of the buffer has several slots; only queries are put back")
        emptied: torch.Tensor = _Empty.apply(filled, self)  # type: ignore[no-untyped-call]
        return emptied


class _Fill(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: torch.Tensor, slots: Slots) -> torch.Tensor:
        ctx.slots = slots
        return rows.index_select(0, slots.index)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        slots: Slots = ctx.slots
        if slots.single:
            return grad.index_select(0, slots.order), None
        return torch.nn.functional.embedding_bag(slots.order, grad.contiguous(), slots.offsets, mode="sum"), None


class _Empty(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, filled: torch.Tensor, slots: Slots) -> torch.Tensor:
        ctx.slots = slots
        return filled.index_select(0, slots.order)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
        slots: Slots = ctx.slots
        # Padded queries get no gradient, so that they add none to keys and values.
        return grad.new_zeros(len(slots.index), grad.shape[1]).index_copy_(0, slots.order, grad), None
