"""The computation of logits by the model's own forward over a cache of rows, which supports every model and is the reference.

``FusedPath`` computes the same in fewer operations for the models that it supports.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from transformers import Cache, PreTrainedModel

from rlcore_plugin_transformers.cache import RowCache
from rlcore_plugin_transformers.prompts import left_padded
from rlcore_plugin_transformers.rows import Rows
from rlcore_plugin_transformers.windows import LayerWindows

__all__ = ["DecodePath"]


class DecodePath:
    """Keys and values of all rows, and the passes over them. ``bool_masks``: attention takes bool masks rather than additive ones."""

    def __init__(self, model: PreTrainedModel, windows: LayerWindows, device: torch.device, *, bool_masks: bool) -> None:
        self._model = model
        self._windows = windows
        self._device = device
        self._bool_masks = bool_masks
        self._cache = RowCache()

    def start(self, contexts: Sequence[np.ndarray], owner: np.ndarray, rows: Rows, first: int) -> torch.Tensor:
        """Compute prompts -> float32[len(owner), V]: logits of each prompt's last place.

        Row ``first + i`` continues prompt ``owner[i]``.
        """
        lengths = np.array([len(context) for context in contexts])
        self._reserve(rows, int(lengths.max()), used=first)
        self._cache.begin_prompts(lengths, owner, first + np.arange(len(owner)), self._device)
        return self._over_contexts(contexts, lengths, self._cache)[torch.from_numpy(owner).to(self._device)]

    def decode(self, rows: Rows) -> torch.Tensor:
        """Return float32[count, V]: the logits after the newest token of each row."""
        tokens, positions = torch.from_numpy(rows.newest()).to(self._device)
        length = int((rows.context + rows.generated)[: rows.count].max())
        self._reserve(rows, length, used=rows.count)
        self._cache.begin_decode(positions, length)
        columns = torch.arange(length, device=self._device)
        visible = columns <= positions[:, None]
        return self._forward(tokens[:, None], positions[:, None], visible[:, None, None, :], columns[None], self._cache)

    def recompute(self, rows: Rows, at_once: int) -> None:
        """Compute keys and values of every row again under the current weights, ``at_once`` rows in a pass."""
        for first in range(0, rows.count, at_once):
            contexts = rows.cached(first, at_once)
            lengths = np.array([len(context) for context in contexts])
            self._cache.begin_prompts(lengths, np.arange(len(contexts)), first + np.arange(len(contexts)), self._device)
            self._over_contexts(contexts, lengths, self._cache)

    def moved(self, rows: Rows, source: np.ndarray, target: np.ndarray) -> None:
        """Move rows after some have ended: rows ``source`` are now rows ``target``, and ``rows.count`` rows are left."""
        if len(source):
            self._cache.move(source, target, int((rows.context + rows.generated)[: rows.count].max()))

    def clear(self) -> None:
        """Free keys and values."""
        self._cache.clear()

    def release(self) -> None:
        """Free keys and values, and release the weights: the engine sleeps."""
        self.clear()

    def bind(self) -> None:
        """Handle that the weights now have other memory."""

    def _over_contexts(self, contexts: Sequence[np.ndarray], lengths: np.ndarray, cache: Cache) -> torch.Tensor:
        tokens, positions, visible = left_padded(contexts, lengths, self._device)
        return self._forward(tokens, positions, visible, positions, cache)

    def _forward(
        self, tokens: torch.Tensor, positions: torch.Tensor, visible: torch.Tensor, columns: torch.Tensor, cache: Cache
    ) -> torch.Tensor:
        """Return float32[b, V]: logits of the last place.

        int64[b, t] tokens and positions, bool[b, 1, t, columns] visible, int64[b or 1, columns] positions of the columns.
        """
        masks = self._masks(visible, positions, columns)
        output = self._model(
            input_ids=tokens,
            position_ids=positions,
            attention_mask=masks if self._windows.mixed else next(iter(masks.values())),
            past_key_values=cache,
            use_cache=True,
            logits_to_keep=1,
        )
        logits: torch.Tensor = output.logits[:, -1].float()
        return logits

    def _masks(self, visible: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return the masks by kind of layer: bool for the fused kernels of CUDA, otherwise additive."""
        masks = self._windows.masks(visible, positions, columns)
        if self._bool_masks:
            return masks
        dtype, lowest = self._model.dtype, torch.finfo(self._model.dtype).min
        return {kind: torch.zeros(mask.shape, dtype=dtype, device=self._device).masked_fill_(~mask, lowest) for kind, mask in masks.items()}

    def _reserve(self, rows: Rows, columns: int, *, used: int) -> None:
        bound = int((rows.context + rows.limit)[: rows.count].max())
        self._cache.reserve(rows.count, columns, used=used, bound=bound)
