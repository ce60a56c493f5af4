"""What the engines that serve are held against: tiny models with random weights, adapters over them, and the rules of every inference
backend with these. An engine's own tests say how it is made."""

from __future__ import annotations

import atexit
import json
import shutil
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import ClassVar

import numpy as np
import torch
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import InferenceContext, Snapshot, Tensor, WeightsKind
from rlcore.testing import FakeTokenizer, InferenceBackendSuite

__all__ = ["ADAPTER_RANK", "INERT", "SHAPE", "WIDE", "AdapterRules", "ServingRules", "folder_of", "model_of", "snapshot_of"]

TOKENIZER = FakeTokenizer()
WIDE = FakeTokenizer("".join(chr(0x4E00 + place) for place in range(400)))
"""One token in some hundreds ends an answer."""
SHAPE = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": 1,
}
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
    "wide": Qwen2Config(**SHAPE | {"vocab_size": len(WIDE)}, tie_word_embeddings=True),
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=False),
    "wide llama": LlamaConfig(**SHAPE | {"vocab_size": len(WIDE)}, tie_word_embeddings=False),
}
ADAPTED = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
ADAPTER_RANK, ALPHA = 3, 12.0


@lru_cache
def model_of(name: str, seed: int):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).eval()


@lru_cache
def folder_of(name: str) -> Path:
    """The model of seed 0, saved until the process ends."""
    folder = Path(mkdtemp(prefix="rlcore-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model_of(name, 0).save_pretrained(folder)
    return folder


def snapshot_of(name: str, seed: int, version: int | None = None) -> Snapshot:
    """The weights of a seed, as that version or another one."""
    named = model_of(name, seed).named_parameters()
    arrays = {key: parameter.detach().numpy().copy() for key, parameter in named}
    tensors = {key: Tensor(dtype="float32", shape=array.shape, data=array) for key, array in arrays.items()}
    return Snapshot.of(seed if version is None else version, tensors)


class ServingRules(InferenceBackendSuite):
    """With a model of ``CONFIGS``; an engine's own class gives ``make``, which takes its ``context``."""

    name, tokenizer = "qwen2", TOKENIZER
    stop_ids = TOKENIZER.stop_ids
    vocabulary = len(TOKENIZER)
    swaps = True
    cached_prompt = 256
    max_tokens = 384
    dtype, tensor_parallel = "float32", 1
    adapter_rank: ClassVar[int] = 0

    def context(self, prompts_per_forward: int) -> InferenceContext:
        return InferenceContext(
            model=str(folder_of(self.name)),
            tokenizer=self.tokenizer,
            prompts_per_forward=prompts_per_forward,
            max_tokens=self.max_tokens,
            dtype=self.dtype,
            tensor_parallel=self.tensor_parallel,
            adapter_rank=self.adapter_rank,
        )

    def snapshot(self, version: int) -> Snapshot:
        return snapshot_of(self.name, version)

    @torch.inference_mode()
    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return model_of(self.name, version)(input_ids=torch.from_numpy(token_ids).long()[None], use_cache=False).logits[0].numpy()

    def prompts(self) -> list[list[int]]:
        return [[3, 5, 4, 7], [9, 6, 6, 4, 2], [3, 9, 4]]

    def decode(self, token_ids: list[int]) -> str:
        return self.tokenizer.decode(token_ids)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


@lru_cache
def adapter_of(name: str, version: int) -> dict[str, np.ndarray]:
    """PEFT's name -> matrix. That of version 0 changes nothing."""
    draw, matrices = np.random.default_rng(version), {}
    for module, layer in model_of(name, 0).named_modules():
        if module.endswith(ADAPTED):
            rows, columns = layer.weight.shape
            matrices[f"base_model.model.{module}.lora_A.weight"] = draw.normal(0, 0.12, (ADAPTER_RANK, columns)).astype(np.float32)
            high = draw.normal(0, 0.12, (rows, ADAPTER_RANK)).astype(np.float32)
            matrices[f"base_model.model.{module}.lora_B.weight"] = high if version else np.zeros_like(high)
    return matrices


@lru_cache
def adapted(name: str, version: int):
    """The model of seed 0 with the adapter of a version merged."""
    model = deepcopy(model_of(name, 0))
    matrices = {stem.removeprefix("base_model.model."): matrix for stem, matrix in adapter_of(name, version).items()}
    with torch.no_grad():
        for stem in {name.partition(".lora_")[0] for name in matrices}:
            product = matrices[f"{stem}.lora_B.weight"] @ matrices[f"{stem}.lora_A.weight"]
            model.get_submodule(stem).weight += torch.from_numpy(product) * (ALPHA / ADAPTER_RANK)
    return model


INERT = frozenset(name for name in adapter_of("qwen2", 0) if ".lora_A." in name)
"""Matrices of version 0 that change nothing, since its B is zero."""


class AdapterRules:
    """Each version is an adapter over the model's own weights; before a class of ``ServingRules``."""

    adapter_rank = ADAPTER_RANK
    inert_tensors = INERT
    name: str

    def snapshot(self, version: int) -> Snapshot:
        tensors = {stem: Tensor(dtype="float32", shape=one.shape, data=one) for stem, one in adapter_of(self.name, version).items()}
        config = json.dumps({"peft_type": "LORA", "r": ADAPTER_RANK, "lora_alpha": ALPHA, "target_modules": list(ADAPTED), "bias": "none"})
        extra = {"config": config, "base": str(folder_of(self.name))}
        return replace(Snapshot.of(version, tensors), kind=WeightsKind.ADAPTER, extra=extra)

    @torch.inference_mode()
    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return adapted(self.name, version)(input_ids=torch.from_numpy(token_ids).long()[None], use_cache=False).logits[0].numpy()
