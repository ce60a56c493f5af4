"""Layers of decoders of the Llama kind over a packed buffer, in few operations: RMS norms, rotary positions, a gated MLP, with biases and
with norms of queries and keys if the model has them. For a CPU, where everything but the products waits for memory.

A layer's linear modules are called as modules, so that adapters on them compute as ever. Without an attention plan (padded rows, probes)
a layer computes by its own ``forward``, which stays the reference that ``CausalPolicy.try_packing`` compares with.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from transformers import PreTrainedModel

from rlcore_plugin_torch.attention import AttentionPlan
from rlcore_plugin_torch.decoder import decoder_layers
from rlcore_plugin_torch.elementwise import gated, rms_normed, rotated, signed

__all__ = ["fuse", "fusible", "unfuse"]

_SERVED = frozenset({"llama", "mistral", "qwen2", "qwen3"})
"""Kinds of models whose layers compute what this computes, whatever their weights."""


def fusible(model: PreTrainedModel) -> bool:
    """Whether the layers of the model are of a kind that this computes, in full precision on a CPU."""
    config = model.config.get_text_config(decoder=True)
    known = config.model_type in _SERVED and getattr(config, "hidden_act", None) == "silu" and not getattr(config, "attention_dropout", 0)
    return known and model.dtype in (torch.float32, torch.float64) and model.device.type == "cpu"


def fuse(model: PreTrainedModel) -> None:
    """From here on the layers compute packed buffers by this module. The model must be ``fusible``."""
    for layer in decoder_layers(model):
        layer.forward = _with_plan(layer, layer.forward)


def unfuse(model: PreTrainedModel) -> None:
    """Undo ``fuse``."""
    for layer in decoder_layers(model):
        layer.__dict__.pop("forward", None)


def _with_plan(layer: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """The ``forward`` of a layer: its ``plain`` one if there is no plan."""

    def forward(hidden_states: torch.Tensor, *args: Any, attention_plan: AttentionPlan | None = None, **kwargs: Any) -> Any:
        if attention_plan is None:
            return plain(hidden_states, *args, **kwargs)
        return _layer(layer, hidden_states[0], kwargs["position_embeddings"], attention_plan)[None]

    return forward


def _layer(layer: Any, hidden: torch.Tensor, rotation: tuple[torch.Tensor, torch.Tensor], plan: AttentionPlan) -> torch.Tensor:
    """[T, H] -> [T, H]; ``rotation``: cosines and sines [1, T, d]."""
    attention, mlp = layer.self_attn, layer.mlp
    cosine, sine = rotation[0][0, :, None], signed(rotation[1][0, :, None])
    normed = _normed(layer.input_layernorm, hidden)
    heads = [linear(normed).unflatten(1, (-1, attention.head_dim)) for linear in (attention.q_proj, attention.k_proj, attention.v_proj)]
    for place, name in enumerate(("q_norm", "k_norm")):
        if hasattr(attention, name):
            heads[place] = _normed(getattr(attention, name), heads[place])
        heads[place] = rotated(heads[place], cosine, sine)
    hidden = hidden + attention.o_proj(plan.attend(*heads, attention.scaling, _window(attention)).flatten(1))
    normed = _normed(layer.post_attention_layernorm, hidden)
    return hidden + mlp.down_proj(gated(mlp.gate_proj(normed), mlp.up_proj(normed)))


def _window(attention: Any) -> int | None:
    """Mistral's sliding window is in the configuration, for every layer; Qwen's in those layers that have one. Llama has none, also where
    its configuration names one, as those of models do that were Mistral's once."""
    owner = attention.config if attention.config.model_type == "mistral" else attention
    window: int | None = getattr(owner, "sliding_window", None)
    return window


def _normed(norm: Any, values: torch.Tensor) -> torch.Tensor:
    """By the module itself if it is none of transformers' own."""
    epsilon = getattr(norm, "variance_epsilon", None)
    return rms_normed(values, norm.weight, epsilon) if isinstance(epsilon, float) else norm(values)  # type: ignore[no-any-return]
