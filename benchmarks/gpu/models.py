"""Models of known shapes with random weights, written to disk as Hugging Face checkpoints: shapes decide speed, weights do not."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, Qwen3Config

from benchmarks.gpu.flops import Shape

__all__ = ["SHAPES", "TINY", "config_of", "write_model"]

SHAPES = {
    "0.6b": Shape(hidden=1024, intermediate=3072, layers=28, heads=16, kv_heads=8, head_dim=128, vocabulary=151_936),
    "1.7b": Shape(hidden=2048, intermediate=6144, layers=28, heads=16, kv_heads=8, head_dim=128, vocabulary=151_936),
}
"""Qwen/Qwen3-0.6B and Qwen/Qwen3-1.7B, by their config.json; embeddings tied."""

TINY = Shape(hidden=64, intermediate=96, layers=2, heads=2, kv_heads=1, head_dim=32, vocabulary=512)


def config_of(shape: Shape) -> Qwen3Config:
    """The shape as transformers takes it."""
    return Qwen3Config(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.intermediate,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=0,
        pad_token_id=1,
    )


def write_model(shape: Shape, folder: Path, device: str, seed: int = 0) -> Path:
    """A checkpoint in bfloat16; drawn on ``device``, since a CPU takes minutes for the large ones."""
    torch.manual_seed(seed)
    with torch.device(device):
        model = AutoModelForCausalLM.from_config(config_of(shape), dtype=torch.bfloat16)
    model.to("cpu").save_pretrained(folder)
    return folder
