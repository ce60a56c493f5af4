"""The engine keeps the rules of every inference backend: with tied embeddings and with a head of its own, in bfloat16, as processes of its
own, and split."""

from __future__ import annotations

import atexit
import json
import shutil
from copy import deepcopy
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from rlcore_plugin_vllm import rlcore_register_inference_backends
from rlcore_plugin_vllm.options import VllmOptions
from rlcore_plugin_vllm.vllm_backend import VllmBackend
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import InferenceBackend, InferenceContext, Snapshot, Tensor, WeightsKind
from rlcore.testing import FakeTokenizer, InferenceBackendSuite

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
}


@lru_cache
def model_of(name: str, seed: int):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).eval()


@lru_cache
def folder_of(name: str) -> Path:
    folder = Path(mkdtemp(prefix="rlcore-test-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    model_of(name, 0).save_pretrained(folder)
    return folder


class TestTied(InferenceBackendSuite):
    spec = rlcore_register_inference_backends()[0]
    name, tokenizer = "qwen2", TOKENIZER
    stop_ids = TOKENIZER.stop_ids
    vocabulary = len(TOKENIZER)
    swaps = True
    cached_prompt = 256
    max_tokens = 384
    dtype, tensor_parallel = "float32", 1
    options = VllmOptions()

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=str(folder_of(self.name)),
            tokenizer=self.tokenizer,
            prompts_per_forward=prompts_per_forward,
            max_tokens=self.max_tokens,
            dtype=self.dtype,
            tensor_parallel=self.tensor_parallel,
        )
        return VllmBackend(context, self.options)

    def snapshot(self, version: int) -> Snapshot:
        named = model_of(self.name, version).named_parameters()
        arrays = {name: parameter.detach().numpy().copy() for name, parameter in named}
        return Snapshot.of(version, {name: Tensor(dtype="float32", shape=array.shape, data=array) for name, array in arrays.items()})

    @torch.inference_mode()
    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return model_of(self.name, version)(input_ids=torch.from_numpy(token_ids).long()[None], use_cache=False).logits[0].numpy()

    def prompts(self) -> list[list[int]]:
        return [[3, 5, 4, 7], [9, 6, 6, 4, 2], [3, 9, 4]]

    def decode(self, token_ids: list[int]) -> str:
        return self.tokenizer.decode(token_ids)

    def encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text)


@pytest.mark.nightly
class TestBfloat16(TestTied):
    """Held against the model in float32, as a trainer in float32 beside it would be."""

    dtype = "bfloat16"
    tolerance, tolerance_reason = 0.1, "weights and sums have 8 bits of mantissa; 0.036 nats were seen at temperature 1"
    same_draws = False


@pytest.mark.nightly
class TestOwnHead(TestTied):
    name = "llama"


ADAPTED = ("q_proj", "v_proj", "o_proj", "up_proj", "down_proj")
RANK, ALPHA = 3, 12.0


@lru_cache
def adapter_of(name: str, version: int) -> dict[str, np.ndarray]:
    """PEFT's name -> matrix. That of version 0 changes nothing."""
    draw, matrices = np.random.default_rng(version), {}
    for module, layer in model_of(name, 0).named_modules():
        if module.endswith(ADAPTED):
            rows, columns = layer.weight.shape
            matrices[f"base_model.model.{module}.lora_A.weight"] = draw.normal(0, 0.12, (RANK, columns)).astype(np.float32)
            high = draw.normal(0, 0.12, (rows, RANK)).astype(np.float32)
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
            model.get_submodule(stem).weight += torch.from_numpy(product) * (ALPHA / RANK)
    return model


def adapter_snapshot(name: str, version: int, **said: str) -> Snapshot:
    tensors = {stem: Tensor(dtype="float32", shape=array.shape, data=array) for stem, array in adapter_of(name, version).items()}
    config = json.dumps({"peft_type": "LORA", "r": RANK, "lora_alpha": ALPHA, "target_modules": list(ADAPTED), "bias": "none"})
    extra = {"config": config, "base": str(folder_of(name))} | said
    return replace(Snapshot.of(version, tensors), kind=WeightsKind.ADAPTER, extra=extra)


@pytest.mark.nightly  # test_vllm_adapters has what is of adapters alone
class TestAdapters(TestTied):
    """Each version is an adapter over the model's own weights."""

    inert_tensors = frozenset(name for name in adapter_of("qwen2", 0) if ".lora_A." in name)  # B of version 0 is zero

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=str(folder_of(self.name)),
            tokenizer=self.tokenizer,
            prompts_per_forward=prompts_per_forward,
            max_tokens=self.max_tokens,
            tensor_parallel=self.tensor_parallel,
            adapter_rank=RANK,
        )
        return VllmBackend(context, self.options)

    def snapshot(self, version: int) -> Snapshot:
        return adapter_snapshot(self.name, version)

    @torch.inference_mode()
    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return adapted(self.name, version)(input_ids=torch.from_numpy(token_ids).long()[None], use_cache=False).logits[0].numpy()


@pytest.mark.nightly  # test_vllm_processes compares what it draws with the engine in one process
class TestOwnProcess(TestTied):
    """It goes on between two calls, so answers that should still run after one poll are longer."""

    name, tokenizer, vocabulary = "wide", WIDE, len(WIDE)
    options = VllmOptions(own_process=True)
    long_tokens = 160


@pytest.mark.nightly
class TestSplitInTwo(TestOwnProcess):
    tensor_parallel = 2
