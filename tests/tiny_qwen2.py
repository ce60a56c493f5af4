"""A Qwen2 of two layers with random weights: small enough for every rule of a trainer, in any environment that has transformers."""

from __future__ import annotations

import atexit
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import torch
from transformers import AutoModelForCausalLM, LlamaConfig, PretrainedConfig, Qwen2Config

__all__ = ["SIZES", "VOCABULARY", "tiny_llama", "tiny_qwen2"]

VOCABULARY = 40
SIZES: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.2,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
"""Of a smaller model still, for tests that start several ranks."""


@lru_cache
def tiny_qwen2(*, tied: bool = True) -> Path:
    """The folder of its checkpoint, made once a process."""
    return _saved(Qwen2Config, tied)


@lru_cache
def tiny_llama(*, tied: bool = True) -> Path:
    """A Llama of the same sizes."""
    return _saved(LlamaConfig, tied)


def _saved(kind: type[PretrainedConfig], tied: bool) -> Path:
    torch.manual_seed(0)
    folder = Path(mkdtemp(prefix="rlcore-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    config = kind(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
        max_position_embeddings=512,
        initializer_range=0.15,
        tie_word_embeddings=tied,
        eos_token_id=0,
        pad_token_id=1,
    )
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder
