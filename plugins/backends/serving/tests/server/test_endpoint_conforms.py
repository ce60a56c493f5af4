"""The backend keeps the rules of every inference backend, against real servers of vLLM."""

from __future__ import annotations

import atexit
import os
import shutil
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_serving import rlcore_register_inference_backends
from rlcore_plugin_serving.endpoint_backend import EndpointBackend
from rlcore_plugin_serving.endpoint_options import EndpointOptions
from transformers import LlamaConfig, PretrainedConfig, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import InferenceBackend, InferenceContext, Snapshot, Tensor
from rlcore.testing import FakeTokenizer, InferenceBackendSuite, update_engine
from tests.engine_servers import EngineServer, ServerShelf, sglang_server, vllm_server

TOKENIZER = FakeTokenizer("".join(chr(0x4E00 + place) for place in range(400)))
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
    "llama": LlamaConfig(**SHAPE, tie_word_embeddings=False),
}
pytestmark = pytest.mark.timeout(900)
ENVIRONMENTS = {"vllm": "RLCORE_TEST_VLLM", "sglang": "RLCORE_TEST_SGLANG"}


def needs(kind: str):
    """A mark: skipped where nothing names the environment."""
    return pytest.mark.skipif(not os.environ.get(ENVIRONMENTS[kind]), reason=f"needs the environment of {kind}: make test-{kind} names it")


@lru_cache
def model_of(name: str, seed: int):
    torch.manual_seed(seed)
    return AutoModelForCausalLM.from_config(CONFIGS[name]).eval()


@lru_cache
def folder() -> Path:
    made = Path(mkdtemp(prefix="rlcore-test-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


@lru_cache
def saved(name: str) -> Path:
    model_of(name, 0).save_pretrained(folder() / name)
    return folder() / name


@lru_cache
def shelf(kind: str, name: str) -> ServerShelf:
    """Servers of vLLM or SGLang."""
    environment = Path(os.environ[ENVIRONMENTS[kind]])

    def make(number: int) -> EngineServer:
        log = folder() / f"{kind}-{name}-{number}.log"
        return vllm_server(environment, saved(name), log) if kind == "vllm" else sglang_server(environment, saved(name), log, emptied(log))

    made = ServerShelf(make)
    atexit.register(made.close)
    return made


def emptied(log: Path) -> Path:
    packages = log.with_suffix(".packages")
    packages.mkdir()
    return packages


def snapshot_of(name: str, number: int, version: int | None = None) -> Snapshot:
    named = model_of(name, number).named_parameters()
    arrays = {key: parameter.detach().numpy().copy() for key, parameter in named}
    tensors = {key: Tensor(dtype="float32", shape=array.shape, data=array) for key, array in arrays.items()}
    return Snapshot.of(number if version is None else version, tensors)


class LentBackend(EndpointBackend):
    """Gives its server back when it is closed."""

    def __init__(self, context: InferenceContext, server: EngineServer, lent: ServerShelf, **options: Any) -> None:
        self.server, self._lent = server, lent
        super().__init__(context, EndpointOptions(addresses=(server.address,), shared_folder=folder(), **options))

    def close(self) -> None:
        super().close()
        self._lent.give(self.server)


class ServerRules(InferenceBackendSuite):
    spec = rlcore_register_inference_backends()[0]
    kind, name = "vllm", "qwen2"
    stop_ids = TOKENIZER.stop_ids
    vocabulary = len(TOKENIZER)
    swaps = True
    cached_prompt = 256
    max_tokens = 384
    long_tokens = 320

    def make(self, prompts_per_forward: int = 8) -> InferenceBackend:
        context = InferenceContext(
            model=str(saved(self.name)), tokenizer=TOKENIZER, prompts_per_forward=prompts_per_forward, max_tokens=self.max_tokens
        )
        backend = LentBackend(context, shelf(self.kind, self.name).take(), shelf(self.kind, self.name))
        update_engine(backend, replace(self.snapshot(0), version=0))
        return backend

    def snapshot(self, version: int) -> Snapshot:
        return snapshot_of(self.name, version)

    @torch.inference_mode()
    def forward(self, version: int, token_ids: np.ndarray) -> np.ndarray:
        return model_of(self.name, version)(input_ids=torch.from_numpy(token_ids).long()[None], use_cache=False).logits[0].numpy()

    def prompts(self) -> list[list[int]]:
        return [[3, 5, 4, 7], [9, 6, 6, 4, 2], [3, 9, 4]]

    def decode(self, token_ids: list[int]) -> str:
        return TOKENIZER.decode(token_ids)

    def encode(self, text: str) -> list[int]:
        return TOKENIZER.encode(text)


@pytest.mark.nightly  # the rules of streams need a client that is not starved
@needs("vllm")
class TestTied(ServerRules):
    """A server of vLLM."""


@pytest.mark.nightly
class TestOwnHead(TestTied):
    name = "llama"


@pytest.mark.nightly
@needs("sglang")
class TestServedBySglang(ServerRules):
    """A server of SGLang; `make test-sglang` starts it on the CPU."""

    kind = "sglang"
    cuts_twice = False
