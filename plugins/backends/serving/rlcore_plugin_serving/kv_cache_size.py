"""The memory that keys and values need."""

from __future__ import annotations

from typing import Any

from rlcore.api import InferenceContext

__all__ = ["text_configuration", "token_bytes"]

_BYTES = {"float32": 4, "bfloat16": 2}


def text_configuration(context: InferenceContext) -> Any:
    """Return transformers' configuration of the model's decoder."""
    from transformers import AutoConfig

    return AutoConfig.from_pretrained(context.model, trust_remote_code=context.trust_remote_code).get_text_config(decoder=True)


def token_bytes(context: InferenceContext) -> int:
    """Return the bytes of one token's keys and values in each process of an engine, by the model's configuration."""
    config = text_configuration(context)
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    width = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    return int(2 * config.num_hidden_layers * -(-heads // context.tensor_parallel) * width * _BYTES[context.dtype])
