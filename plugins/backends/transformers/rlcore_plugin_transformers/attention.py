"""Attention of one new token per row on a CPU, as two batched matrix products; torch's fused kernel is made for long queries and is slower
here.

All other cases (prompts, CUDA, arguments that this function does not support) use transformers' own ``sdpa``.
"""

from __future__ import annotations

from typing import Any

import torch
from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

__all__ = ["use_decode_attention"]

_NAME = "rlcore_decode"
_UNKNOWN = ("softcap", "position_bias", "cache", "s_aux")


def use_decode_attention(model: PreTrainedModel) -> None:
    """Let a model that was loaded with ``sdpa`` use this attention."""
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    model.set_attn_implementation(_NAME)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Query float[b, h, t, d], key and value float[b, kv heads, columns, d], bool or additive mask [b, 1, t, columns] -> [b, t, h, d]."""
    short = query.shape[2] == 1 and query.device.type == "cpu" and all(kwargs.get(name) is None for name in _UNKNOWN)
    if not short or scaling is None or attention_mask is None or attention_mask.dtype == torch.bool or attention_mask.shape[1] != 1:
        attended, _ = sdpa_attention_forward(module, query, key, value, attention_mask, scaling=scaling, **kwargs)
        return attended, None
    batch, heads, _, size = query.shape
    grouped = (query * scaling).reshape(batch, key.shape[1], heads // key.shape[1], size)
    scores = torch.matmul(grouped, key.transpose(2, 3)).add_(attention_mask)
    weights = torch.softmax(scores, dim=-1, dtype=torch.float32).to(value.dtype)
    return torch.matmul(weights, value).reshape(batch, 1, heads, value.shape[3]), None
