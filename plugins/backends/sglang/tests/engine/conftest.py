"""Tests that make the engine: `make test-sglang` runs them in the environment that has it. Elsewhere none of them is collected, since the
engine's packages do not fit beside those of the other plugins. Tiny random models, made on the spot."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from rlcore.api import InferenceContext, Request, Sampling, Snapshot, Tensor
from rlcore.testing import FakeTokenizer

collect_ignore_glob = [] if find_spec("sglang") else ["test_*"]
TOKENIZER = FakeTokenizer()
ENDLESS = FakeTokenizer()
"""No token ends an answer."""
ENDLESS.stop_ids = frozenset()
SHAPE = {
    "vocab_size": len(TOKENIZER),
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "max_position_embeddings": 1024,
    "initializer_range": 0.15,
    "eos_token_id": 0,
    "bos_token_id": None,
    "pad_token_id": 1,
}


@pytest.fixture(scope="session")
def model():
    """A function that makes a model of transformers: ``model(seed)``, embeddings tied."""
    import torch
    from transformers import Qwen2Config
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    def make(seed: int):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(Qwen2Config(**SHAPE, tie_word_embeddings=True)).eval()

    return make


@pytest.fixture(scope="session")
def folder(model, tmp_path_factory) -> str:
    """The model of seed 0, saved."""
    path = tmp_path_factory.mktemp("qwen2")
    model(0).save_pretrained(path)
    return str(path)


@pytest.fixture
def backend(folder):
    """A function that makes engines, which end with the test: ``backend(max_tokens=64, max_running_requests=4)``."""
    from rlcore_plugin_sglang.options import SglangOptions
    from rlcore_plugin_sglang.sglang_backend import SglangBackend

    made = []

    def make(
        *, max_tokens: int = 64, dtype: str = "float32", device: str = "auto", tensor_parallel: int = 1, endless: bool = False, **options
    ):
        context = InferenceContext(
            model=folder,
            tokenizer=ENDLESS if endless else TOKENIZER,
            prompts_per_forward=8,
            max_tokens=max_tokens,
            dtype=dtype,
            device=device,
            tensor_parallel=tensor_parallel,
        )
        made.append(SglangBackend(context, SglangOptions(**options)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def snapshot(model):
    """A function that makes the weights of a version: ``snapshot(version, seed=version)``."""

    def make(version: int, seed: int | None = None) -> Snapshot:
        named = model(version if seed is None else seed).named_parameters()
        arrays = {name: parameter.detach().numpy().copy() for name, parameter in named}
        return Snapshot.of(version, {name: Tensor(dtype="float32", shape=array.shape, data=array) for name, array in arrays.items()})

    return make


@pytest.fixture
def ask():
    """A function that makes a request: ``ask("r0", [3, 5], noise=1, temperature=0.5, top_k=3)``."""

    def make(name: str, token_ids, *, noise: int = 0, **sampling) -> Request:
        return Request(request_id=name, token_ids=token_ids, sampling=Sampling(**sampling), noise=(0, 0, 0, noise))

    return make


@pytest.fixture
def answered():
    """A function that submits requests, polls until all have ended and returns completions by request id."""

    def run(engine, requests) -> dict:
        engine.submit(requests)
        found: dict = {}
        while len(found) < len(requests):  # a poll of a starved machine may come back with nothing
            found |= {completion.request_id: completion for completion in engine.poll(1.0)}
        return found

    return run
