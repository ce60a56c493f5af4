"""The tokens before that each layer of a model may see: all of them, or a sliding window of the last few.

Keys and values of every token stay in the cache of every layer; a window is a mask over them. So rows of any length share one pass. A
window needs as much memory as full attention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import DynamicCache
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer

__all__ = ["LayerWindows"]

FULL, SLIDING = "full_attention", "sliding_attention"
_OF_THEIR_OWN = (
    "keep_window_size",
    "window_size",
    "attention_window_size",
    "sliding_window_size",
    "local_attention_window_len",
    "index_topk",
)
# Settings of models whose layers narrow their masks themselves, by the place of a token in the batch.


@dataclass(frozen=True, slots=True)
class LayerWindows:
    """The windows of a model's layers.

    ``sliding``: tokens that the layers with a window see, including the newest; None if no layer has a window. ``mixed``: other layers see
    all tokens, and the model takes one mask for each kind of layer, by its name in ``config.layer_types``.
    """

    sliding: int | None = None
    mixed: bool = False

    @classmethod
    def of(cls, config: Any, max_tokens: int) -> LayerWindows | str:
        """Return the windows of a model's text configuration, or half a sentence on why its layers are not supported.

        A window of at least ``max_tokens`` counts as full attention.
        """
        kinds = getattr(config, "layer_types", None) or []
        windows: dict[str, set[int | None]] = {}
        for number, layer in enumerate(DynamicCache(config=config).layers):
            kind = kinds[number] if number < len(kinds) else ""
            if type(layer) is DynamicLayer and kind in ("", FULL):
                windows.setdefault(kind, set()).add(None)
            elif type(layer) is DynamicSlidingWindowLayer and kind in ("", SLIDING) and (kind or not _chunked(config)):
                windows.setdefault(kind, set()).add(layer.sliding_window if layer.sliding_window < max_tokens else None)
            else:
                return (
                    f"keeps the past of layer {number} as {kind or type(layer).__name__}, but the transformers backend only supports "
                    "layers that keep every key and value, with or without a sliding window; use another model or another backend"
                )
        if any(len(sizes) > 1 for sizes in windows.values()):
            return (
                "has sliding windows of several sizes, or does not say in layer_types which layers have one, and the decode loop makes one "
                "mask for all layers of a kind; use another model or another backend"
            )
        for name in _OF_THEIR_OWN:
            limit = getattr(config, name, None)
            if type(limit) is int and limit < max_tokens and (name != "window_size" or "local" in getattr(config, "attention_layers", ())):
                return (
                    f"limits in its own way which tokens a token sees ({name} {limit}), which the decode loop does not support; use "
                    f"another backend, or prompts and responses of at most {limit} tokens together (--max-prompt-tokens, --max-new-tokens)"
                )
        sizes = set().union(*windows.values())
        return cls(sliding=max((size for size in sizes if size is not None), default=None), mixed=len(sizes) > 1)

    def masks(self, visible: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor) -> Mapping[str, torch.Tensor]:
        """Return a mask for each kind of layer.

        ``visible`` bool[b, 1, t, columns]; ``positions`` int64[b, t] of the queries; ``columns`` int64[b or 1, columns]: positions of the
        keys.
        """
        if self.sliding is None:
            return {FULL: visible}
        near = (positions[:, :, None] - columns[:, None, :] < self.sliding)[:, None]
        return {SLIDING: visible & near, **({FULL: visible} if self.mixed else {})}


def _chunked(config: Any) -> bool:
    """Return whether layers see a chunk of the sequence; the cache of such layers looks like that of a window."""
    return getattr(config, "attention_chunk_size", None) is not None and getattr(config, "sliding_window", None) is None
