"""The engine keeps the rules of every inference backend, with tied embeddings and with a head of its own.

RLCORE_TEST_DEVICE=cuda and RLCORE_TEST_DTYPE=bfloat16 run the same rules on a GPU and in another precision.
"""

from __future__ import annotations

import atexit
import os
import shutil
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import numpy as np
import pytest
import torch
from rlcore_plugin_transformers import rlcore_register_inference_backends
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import InferenceBackend, InferenceContext, Snapshot, Tensor
from rlcore.testing import FakeTokenizer, InferenceBackendSuite
from tests.serving_rules import SHAPE

TOKENIZER = FakeTokenizer()
DEVICE = os.environ.get("RLCORE_TEST_DEVICE", "cpu")
DTYPE = os.environ.get("RLCORE_TEST_DTYPE", "float32")
BOUNDS = {
    "float32": (1e-4, ""),
    "bfloat16": (0.1, "weights and sums have 8 bits of mantissa; 0.097 nats were seen beside a forward in fp32"),
}
CONFIGS: dict[str, PretrainedConfig] = {
    "qwen2": Qwen2Config(**SHAPE, tie_word_embeddings=True),
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=False),
}


@lru_cache(maxsize=8)
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
    name = "qwen2"
    fused = True
    stop_ids = TOKENIZER.stop_ids
    vocabulary = len(TOKENIZER)
    dtype = DTYPE
    tolerance, tolerance_reason = BOUNDS[DTYPE]
    same_draws = DTYPE == "float32"
    max_tokens = 128

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=str(folder_of(self.name)),
            tokenizer=TOKENIZER,
            prompts_per_forward=prompts_per_forward,
            max_tokens=self.max_tokens,
            dtype=self.dtype,
            device=DEVICE,
        )
        return TransformersBackend(context, TransformersOptions(fused=self.fused))

    def snapshot(self, version: int) -> Snapshot:
        named = model_of(self.name, version).named_parameters()
        arrays = {name: parameter.detach().numpy().copy() for name, parameter in named}
        return Snapshot.of(version, {name: Tensor(dtype="float32", shape=array.shape, data=array) for name, array in arrays.items()})

    def prompts(self) -> list[list[int]]:
        return [[3, 5, 4, 7], [9, 6, 6, 4, 2], [3, 9, 4]]

    def decode(self, token_ids: list[int]) -> str:
        return TOKENIZER.decode(token_ids)

    def encode(self, text: str) -> list[int]:
        return TOKENIZER.encode(text)

    @torch.inference_mode()
    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return model_of(self.name, version)(torch.from_numpy(token_ids).long()[None]).logits[0].numpy()


class TestOwnHead(TestTied):
    name = "llama"


class TestPlainPath(TestTied):
    fused = False


@pytest.mark.full
class TestBfloat16(TestTied):
    dtype = "bfloat16"
    tolerance, tolerance_reason = BOUNDS["bfloat16"]
    same_draws = False
