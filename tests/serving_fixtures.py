"""Fixtures of the tests that make a serving engine; a conftest imports them and adds ``backend``, by ``lent_backends``. Tiny random models,
made on the spot."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from rlcore.api import InferenceBackend, InferenceContext, Request, Sampling, Snapshot, Tensor
from rlcore.testing import FakeTokenizer

__all__ = ["answered", "ask", "folder", "lent_backends", "model", "snapshot"]

TOKENIZER = FakeTokenizer()
ENDLESS = FakeTokenizer()
"""No token ends an answer."""
ENDLESS.stop_ids = frozenset()


@pytest.fixture(scope="session")
def model():
    """A function that makes a model of transformers: ``model(seed)``, embeddings tied."""
    import torch
    from transformers import Qwen2Config
    from transformers.models.auto.modeling_auto import AutoModelForCausalLM

    from tests.serving_rules import SHAPE

    even = {"num_key_value_heads": 2, "intermediate_size": 128}  # for two processes: SGLang pads others, and takes no adapter then
    config = Qwen2Config(**SHAPE | even | {"max_position_embeddings": 1024}, tie_word_embeddings=True)

    def make(seed: int):
        torch.manual_seed(seed)
        return AutoModelForCausalLM.from_config(config).eval()

    return make


@pytest.fixture(scope="session")
def folder(model, tmp_path_factory) -> str:
    """The model of seed 0, saved."""
    path = tmp_path_factory.mktemp("qwen2")
    model(0).save_pretrained(path)
    return str(path)


def lent_backends(folder: str, engine: Callable[[InferenceContext, dict[str, Any]], InferenceBackend]) -> Iterator[Callable[..., Any]]:
    """A function that makes engines, which end with the test: ``backend(max_tokens=64, tensor_parallel=2)``, and options of the engine."""
    made = []

    def make(
        *,
        max_tokens: int = 64,
        dtype: str = "float32",
        device: str = "auto",
        tensor_parallel: int = 1,
        adapter_rank: int = 0,
        endless: bool = False,
        **options: Any,
    ) -> InferenceBackend:
        context = InferenceContext(
            model=folder,
            tokenizer=ENDLESS if endless else TOKENIZER,
            prompts_per_forward=8,
            max_tokens=max_tokens,
            dtype=dtype,
            device=device,
            tensor_parallel=tensor_parallel,
            adapter_rank=adapter_rank,
        )
        made.append(engine(context, options))
        return made[-1]

    yield make
    for one in made:
        one.close()


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
