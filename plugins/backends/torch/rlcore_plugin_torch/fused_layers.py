"""Decoder layers of the Llama kind over a packed buffer, in few operations: RMS norms, rotary positions and a gated MLP.

Biases, and norms of queries and keys, are included if the model has them. This is for CPUs, where everything except matrix products is
limited by memory bandwidth.

A layer's linear modules are called as modules, so that adapters on them work as usual. Without an attention plan (padded rows, probes) a
layer computes by its own ``forward``, which stays the reference that ``CausalPolicy.try_packing`` compares with.
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
"""Model types whose layers compute the same function as this module, for any weights."""


def fusible(model: PreTrainedModel) -> bool:
    """Return whether this module supports the model's layers: a known type, in full precision on a CPU."""
    config = model.config.get_text_config(decoder=True)
    known = config.model_type in _SERVED and getattr(config, "hidden_act", None) == "silu" and not getattr(config, "attention_dropout", 0)
    return known and model.dtype in (torch.float32, torch.float64) and model.device.type == "cpu"


def fuse(model: PreTrainedModel) -> None:
    """Let the layers compute packed buffers by this module. The model must be ``fusible``."""
    for layer in decoder_layers(model):
        layer.forward = _with_plan(layer, layer.forward)


def unfuse(model: PreTrainedModel) -> None:
    """Undo ``fuse``."""
    for layer in decoder_layers(model):
        layer.__dict__.pop("forward", None)


def _with_plan(layer: Any, plain: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``forward`` for the layer, which calls ``plain`` if there is no plan."""

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
    """Return the sliding window of the layer; None if it has none.

    Mistral's window is in the configuration and applies to every layer; Qwen's is in those layers that have one. Llama has none, even if
    its configuration names one, as in models that were converted from Mistral.
    """
    owner = attention.config if attention.config.model_type == "mistral" else attention
    window: int | None = getattr(owner, "sliding_window", None)
    return window


def _normed(norm: Any, values: torch.Tensor) -> torch.Tensor:
    """Normalise the values, by the module itself if it is not one of transformers' own norms."""
    epsilon = getattr(norm, "variance_epsilon", None)
    return rms_normed(values, norm.weight, epsilon) if isinstance(epsilon, float) else norm(values)  # type: ignore[no-any-return]
