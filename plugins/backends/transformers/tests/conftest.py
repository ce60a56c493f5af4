"""Tiny real models and a real tokenizer, made on the spot; no test here downloads anything. RLCORE_TEST_DEVICE=cuda: on a GPU."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from rlcore_plugin_transformers.engine import TransformersBackend
from rlcore_plugin_transformers.options import TransformersOptions
from tokenizers import Tokenizer as FastTokenizer
from tokenizers import decoders, models, pre_tokenizers
from transformers import LlamaConfig, PreTrainedTokenizerFast, Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import Completion, InferenceContext, Request, Snapshot, Tensor
from rlcore.testing import ChatTokenizer

DEVICE = os.environ.get("RLCORE_TEST_DEVICE", "cpu")
ALPHABET = sorted(pre_tokenizers.ByteLevel.alphabet())
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"
SHAPE = {
    "vocab_size": len(ALPHABET) + 2,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "eos_token_id": len(ALPHABET) + 1,
    "bos_token_id": None,
    "pad_token_id": len(ALPHABET),
}


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def tokenizer() -> ChatTokenizer:
    """Byte-level, one token a byte, so that characters beyond ASCII take several tokens."""
    vocabulary = {character: number for number, character in enumerate([*ALPHABET, "<pad>", "<eos>"])}
    fast = FastTokenizer(models.BPE(vocab=vocabulary, merges=[]))
    fast.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    fast.decoder = decoders.ByteLevel()
    wrapped = PreTrainedTokenizerFast(tokenizer_object=fast, eos_token="<eos>", pad_token="<pad>")
    wrapped.chat_template = TEMPLATE
    return ChatTokenizer(wrapped)


def save_model(folder: Path, config, seed: int = 0):
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config).eval()
    model.save_pretrained(folder)
    return model


@pytest.fixture(scope="session")
def qwen2(tmp_path_factory) -> str:
    """Tied embeddings and biased projections."""
    folder = tmp_path_factory.mktemp("qwen2")
    save_model(folder, Qwen2Config(**SHAPE, tie_word_embeddings=True))
    return str(folder)


@pytest.fixture(scope="session")
def llama(tmp_path_factory) -> str:
    """An output head of its own."""
    folder = tmp_path_factory.mktemp("llama")
    save_model(folder, LlamaConfig(**SHAPE, tie_word_embeddings=False), seed=1)
    return str(folder)


@pytest.fixture(scope="session")
def wide(tmp_path_factory) -> str:
    """Wide enough that its weights outweigh what else a process allocates."""
    folder = tmp_path_factory.mktemp("wide")
    save_model(folder, LlamaConfig(**{**SHAPE, "hidden_size": 512, "intermediate_size": 1024}, tie_word_embeddings=False))
    return str(folder)


@pytest.fixture
def backend(tokenizer):
    """A function that makes engines: ``backend(path, prompts_per_forward=4, **options)``."""

    def make(path: str, *, prompts_per_forward: int = 4, max_tokens: int = 200, dtype: str = "float32", **options) -> TransformersBackend:
        context = InferenceContext(
            model=path, tokenizer=tokenizer, prompts_per_forward=prompts_per_forward, max_tokens=max_tokens, dtype=dtype, device=DEVICE
        )
        return TransformersBackend(context, TransformersOptions(**options))

    return make


@pytest.fixture
def plain():
    """A function that loads a model for plain forward passes: what the engine is compared with."""

    def load(path: str):
        return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32).eval()

    return load


def prompts_of(lengths, seed: int = 0, vocabulary: int = 256) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocabulary, length).astype(np.int32) for length in lengths]


@pytest.fixture
def requests_of():
    """A function that makes requests: ``requests_of(prompts, group_sizes, sampling)``; ids are ``<prompt>-<rollout>``."""

    def make(prompts, sizes, sampling, *, seed: int = 0, name: str = "") -> list[Request]:
        return [
            Request(request_id=f"{name}{index}-{rollout}", token_ids=prompt, sampling=sampling, noise=(seed, 0, index, rollout))
            for index, (prompt, size) in enumerate(zip(prompts, sizes, strict=True))
            for rollout in range(size)
        ]

    return make


@pytest.fixture
def prompts():
    """A function that makes random prompts of the given lengths."""
    return prompts_of


@pytest.fixture
def drain():
    """A function that polls until nothing is in flight and returns completions by request id."""

    def run(engine) -> dict[str, Completion]:
        finished: dict[str, Completion] = {}
        while completions := engine.poll(60.0):
            finished.update({completion.request_id: completion for completion in completions})
        return finished

    return run


@pytest.fixture
def snapshot_of():
    """A function that makes a snapshot of a model, optionally with noise added, as a trainer would send it."""

    def make(model, version: int, *, shift: float = 0.0, seed: int = 7) -> Snapshot:
        generator = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator) * shift)
        tensors = {
            name: Tensor(dtype="float32", shape=tuple(value.shape), data=value.detach().numpy().copy())
            for name, value in model.state_dict().items()
        }
        return Snapshot.of(version, tensors)

    return make
