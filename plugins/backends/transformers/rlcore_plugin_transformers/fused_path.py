"""The decode path of models that ``FusedDecoder`` supports: keys and values of a prompt are in memory once for all rows of its group.

The speed of a decode step of a small model depends on the number of operations and on memory: every step reads all keys and values. This
path reads those of a prompt once per group, with one product with the queries of all its rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from transformers import Cache, PreTrainedModel

from rlcore_plugin_transformers.cache import RowCache
from rlcore_plugin_transformers.decode_path import DecodePath
from rlcore_plugin_transformers.fused_decoder import FusedDecoder, Sharing
from rlcore_plugin_transformers.rows import Rows
from rlcore_plugin_transformers.windows import LayerWindows

__all__ = ["FusedPath"]


class FusedPath(DecodePath):
    """Prompts in slots, dense like rows: the last slot fills a slot whose group has ended.

    ``_cache`` holds the generated tokens of the rows, from column 0.
    """

    def __init__(self, model: PreTrainedModel, windows: LayerWindows, device: torch.device, *, max_tokens: int) -> None:
        super().__init__(model, windows, device, bool_masks=False)
        self._max_tokens = max_tokens
        self._decoder: FusedDecoder | None = FusedDecoder(model, max_tokens)
        self._prompts = RowCache()
        self._slots = _Slots()
        self._sharing: Sharing | None = None

    def start(self, contexts: Sequence[np.ndarray], owner: np.ndarray, rows: Rows, first: int) -> torch.Tensor:
        """See DecodePath; the rows' groups are new ones, in the order of ``contexts``."""
        lengths = np.array([len(context) for context in contexts])
        taken = self._slots.count
        groups = rows.group[first + np.unique(owner, return_index=True)[1]]
        places = self._slots.add(groups, lengths)
        self._prompts.reserve(self._slots.count, int(lengths.max()), used=taken, bound=self._max_tokens)
        self._prompts.begin_prompts(lengths, np.arange(len(contexts)), places, self._device)
        self._sharing = None
        return self._over_contexts(contexts, lengths, self._prompts)[torch.from_numpy(owner).to(self._device)]

    def decode(self, rows: Rows) -> torch.Tensor:
        """See DecodePath."""
        assert self._decoder is not None  # the engine does not decode while it sleeps
        sharing, limit = self._shared(rows), int(rows.limit[: rows.count].max())
        length = max(int(rows.generated[: rows.count].max()), min(self._decoder.fewest_columns, limit))
        tokens, positions = torch.from_numpy(rows.newest()).to(self._device)
        newest = positions - sharing.lengths
        self._cache.reserve(rows.count, length, used=rows.count, bound=limit)
        self._cache.begin_decode(newest, length)
        # A row sees the slot of its prompt, except the last columns if they belong to longer prompts, and then its own columns.
        columns = torch.arange(length, device=self._device)
        visible = torch.cat((sharing.visible, columns <= newest[:, None]), dim=1)
        standing = positions[:, None]
        if self._windows.sliding is not None:
            before = torch.arange(sharing.width, device=self._device).expand(rows.count, -1)
            standing = torch.cat((before, sharing.lengths[:, None] + columns), dim=1)
        masks = self._masks(visible[:, None, None], positions[:, None], standing)
        return self._decoder(tokens, positions, masks, self._cache, self._prompts, sharing)

    def recompute(self, rows: Rows, at_once: int) -> None:
        """See DecodePath. A row's prompt goes to its slot, and its generated tokens to the row."""
        for first in range(0, rows.count, at_once):
            contexts = rows.cached(first, at_once)
            chosen = first + np.arange(len(contexts))
            lengths, prompts = np.array([len(one) for one in contexts]), rows.context[chosen]
            slots, of_slot = np.unique(self._slots.of(rows.group[chosen]), return_index=True)
            self._prompts.begin_prompts(lengths, of_slot, slots, self._device, part=(np.zeros_like(prompts), prompts))
            self._cache.begin_prompts(lengths, np.arange(len(contexts)), chosen, self._device, part=(prompts, lengths - prompts))
            self._over_contexts(contexts, lengths, _Both(self._prompts, self._cache))

    def moved(self, rows: Rows, source: np.ndarray, target: np.ndarray) -> None:
        """See DecodePath."""
        self._sharing = None
        if len(source):
            self._cache.move(source, target, int(rows.generated[: rows.count].max()))
        come, gone = self._slots.keep(np.unique(rows.group[: rows.count]))
        if len(come):
            self._prompts.move(come, gone, int(self._slots.lengths[gone].max()))

    def clear(self) -> None:
        """Free keys and values."""
        super().clear()
        self._prompts.clear()
        self._slots, self._sharing = _Slots(), None

    def release(self) -> None:
        """Free keys and values, and release the weights."""
        super().release()
        self._decoder = None

    def bind(self) -> None:
        """Handle that the weights now have other memory."""
        self._decoder = FusedDecoder(self._model, self._max_tokens)

    def _shared(self, rows: Rows) -> Sharing:
        if self._sharing is None:
            self._sharing = Sharing.of(self._slots.of(rows.group[: rows.count]), self._slots.lengths, self._device)
        return self._sharing


class _Slots:
    """The group whose prompt is in each slot: ``groups`` and ``lengths`` int64[slots]."""

    def __init__(self) -> None:
        self.groups, self.lengths = np.zeros(0, np.int64), np.zeros(0, np.int64)

    @property
    def count(self) -> int:
        """The number of slots in use."""
        return len(self.groups)

    def add(self, groups: np.ndarray, lengths: np.ndarray) -> np.ndarray:
        """Return int64[g]: the slots of new groups."""
        first = self.count
        self.groups, self.lengths = np.concatenate([self.groups, groups]), np.concatenate([self.lengths, lengths])
        return np.arange(first, self.count)

    def of(self, groups: np.ndarray) -> np.ndarray:
        """Return the slot of each group."""
        order = np.argsort(self.groups)
        return order[np.searchsorted(self.groups, groups, sorter=order)]

    def keep(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Drop all other groups. Returns (source, target) of the slots that move into the gaps."""
        stays = np.isin(self.groups, groups)
        left = int(stays.sum())
        target, source = np.flatnonzero(~stays[:left]), left + np.flatnonzero(stays[left:])
        for name in ("groups", "lengths"):
            values = getattr(self, name).copy()
            values[target] = values[source]
            setattr(self, name, values[:left])
        return source, target


class _Both(Cache):  # type: ignore[misc]  # transformers is untyped here
    """A cache that passes the keys and values of a pass over whole contexts to other caches."""

    def __init__(self, *caches: RowCache) -> None:
        super().__init__(layers=[])
        self._caches = caches

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Pass on the keys and values of one layer; the model calls this."""
        for cache in self._caches:
            cache.update(key_states, value_states, layer_idx)
        return key_states, value_states

    def get_seq_length(self, layer_idx: int = 0) -> int:
        """Return 0: the cache has no tokens before this pass."""
        return 0
