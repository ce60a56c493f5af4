"""Keys and values of all rows, each row from column 0, in tensors that are allocated once and grow when needed.

The last row fills the gap of a row that ends. A prompt is computed once and written to every row of its group. This module does not handle
requests: the caller gives it the rows.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from transformers import Cache

__all__ = ["RowCache"]


class RowCache(Cache):  # type: ignore[misc]  # transformers is untyped here
    """A transformers ``Cache`` over rows of different lengths.

    Keys and values of layer ``l``: ``[rows, heads, columns, head size]``. Before each forward pass, ``begin_prompts`` or ``begin_decode``
    sets the places that the pass writes to. The caller provides four-dimensional attention masks.
    """

    def __init__(self) -> None:
        super().__init__(layers=[])
        self._keys: list[torch.Tensor] = []
        self._values: list[torch.Tensor] = []
        self._rows = 0
        self._columns = 0
        self._source: torch.Tensor | None = None
        self._target = (torch.zeros(0), torch.zeros(0))
        self._places: dict[int, torch.Tensor] = {}
        self._view = (0, 0)

    def reserve(self, rows: int, columns: int, *, used: int, bound: int) -> None:
        """Allocate at least ``rows`` x ``columns``, and keep the first ``used`` rows; never more than ``bound`` columns unless
        ``columns`` exceeds it."""
        if rows <= self._rows and columns <= self._columns:
            return
        used = min(used, self._rows)
        rows = self._rows if rows <= self._rows else max(rows, 2 * self._rows)
        columns = (
            self._columns
            if columns <= self._columns
            else min(max(columns, self._columns + max(8, self._columns // 8)), max(bound, columns))
        )
        for tensors in (self._keys, self._values):
            for layer, old in enumerate(tensors):
                # Zeros, not empty: a masked column still enters the weighted sum, with weight 0, and 0 x nan is nan.
                new = old.new_zeros(rows, old.shape[1], columns, old.shape[3])
                new[:used, :, : self._columns] = old[:used]
                tensors[layer] = new
        self._rows, self._columns = rows, columns

    def begin_prompts(
        self,
        lengths: np.ndarray,
        owner: np.ndarray,
        rows: np.ndarray,
        device: torch.device,
        part: tuple[np.ndarray, np.ndarray] | None = None,
    ) -> None:
        """Prepare a pass over left-padded contexts of int64[g] lengths; row ``rows[i]`` gets those of context ``owner[i]``, from column 0
        on.

        ``part``: the first token of each context that is kept and the number of kept tokens, int64[g] both; None: all tokens.
        """
        width = int(lengths.max())
        start, kept = (np.zeros_like(lengths), lengths) if part is None else part
        copied = kept[owner]
        column = np.arange(int(copied.sum())) - np.repeat(np.cumsum(copied) - copied, copied)
        prompt = np.repeat(owner, copied)
        source = prompt * width + (width - lengths[prompt]) + start[prompt] + column
        places = torch.from_numpy(np.stack([source, np.repeat(rows, copied), column])).to(device)
        self._source = places[0]
        self._write_to(places[1], places[2])

    def begin_decode(self, positions: torch.Tensor, length: int) -> None:
        """Prepare a pass that adds one token to each of the first rows, at column ``positions`` int64[n]; ``length`` columns are
        attended to."""
        self._source, self._view = None, (len(positions), length)
        self._write_to(torch.arange(len(positions), device=positions.device), positions)

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Store the keys and values of one layer, float[b, heads, t, head size], and return those to attend to; the model calls this."""
        if layer_idx == len(self._keys):
            self._keys.append(self._blank(key_states))
            self._values.append(self._blank(value_states))
        keys = self._write(self._keys[layer_idx], key_states)
        values = self._write(self._values[layer_idx], value_states)
        return (key_states, value_states) if self._source is not None else (keys, values)

    def append(self, layer: int, keys: torch.Tensor, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Store float[n, heads, head size] in a decode step, as ``update`` does.

        Returns the keys and values to attend to, [n, heads, columns, head size].
        """
        if layer == len(self._keys):
            self._keys.append(self._blank(keys))
            self._values.append(self._blank(values))
        return self._put(self._keys[layer], keys), self._put(self._values[layer], values)

    def held(self, layer: int, rows: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return keys and values of the first rows and columns, [rows, heads, columns, head size]."""
        return self._keys[layer][:rows, :, :columns], self._values[layer][:rows, :, :columns]

    def move(self, source: np.ndarray, target: np.ndarray, length: int) -> None:
        """Copy the first ``length`` columns of rows ``source`` over rows ``target``; the two sets are disjoint.

        Rows outside the reserved ones hold nothing and are skipped.
        """
        inside = source < self._rows
        source, target = source[inside], target[inside]
        for tensor in (*self._keys, *self._values):
            places = torch.from_numpy(np.stack([source, target])).to(tensor.device)
            tensor[places[1], :, :length] = tensor[places[0], :, :length]

    def clear(self) -> None:
        """Free everything, including the places of the last pass, which are on the device."""
        self._keys.clear()
        self._values.clear()
        self._places.clear()
        self._source, self._target = None, (torch.zeros(0), torch.zeros(0))
        self._rows = self._columns = 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return the number of columns attended to before this pass; some models ask although positions and masks are given."""
        return max(self._view[1] - 1, 0) if self._source is None else 0

    def _write_to(self, rows: torch.Tensor, columns: torch.Tensor) -> None:
        self._target = (rows, columns)
        self._places.clear()

    def _blank(self, states: torch.Tensor) -> torch.Tensor:
        return states.new_zeros(self._rows, states.shape[1], self._columns, states.shape[-1])

    def _write(self, store: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        flat = states.transpose(1, 2).reshape(-1, store.shape[1], store.shape[3])
        return self._put(store, flat if self._source is None else flat.index_select(0, self._source))

    def _put(self, store: torch.Tensor, flat: torch.Tensor) -> torch.Tensor:
        heads, size = store.shape[1], store.shape[3]
        if heads not in self._places:
            rows, columns = self._target
            head = torch.arange(heads, device=rows.device)
            self._places[heads] = ((rows[:, None] * heads + head) * self._columns + columns[:, None]).reshape(-1)
        store.view(-1, size).index_copy_(0, self._places[heads], flat.reshape(-1, size))
        shown, length = self._view
        return store[:shown, :, :length]
