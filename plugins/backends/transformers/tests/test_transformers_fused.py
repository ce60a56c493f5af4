"""The fused path draws the tokens of the plain path, at log probabilities that differ by rounding, whatever becomes of rows and groups."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rlcore_plugin_transformers.fused_decoder import FusedDecoder, Sharing
from rlcore_plugin_transformers.fused_path import FusedPath
from transformers import GemmaConfig, LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import Sampling
from rlcore.testing import update_engine

SMALL = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 256,
    "initializer_range": 0.3,
    "eos_token_id": 257,
    "bos_token_id": None,
    "pad_token_id": 256,
}
MODELS = {
    "llama": LlamaConfig(**SMALL, attention_bias=True, mlp_bias=False, tie_word_embeddings=False),
    "one head a query": LlamaConfig(
        **{**SMALL, "num_key_value_heads": 4}, rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    ),
    "qwen2": Qwen2Config(**SMALL, tie_word_embeddings=True),
    "qwen2 with windows in some layers": Qwen2Config(
        **SMALL, use_sliding_window=True, sliding_window=8, layer_types=["full_attention", "sliding_attention", "full_attention"]
    ),
    "qwen3": Qwen3Config(**SMALL),
    "mistral": MistralConfig(**SMALL, sliding_window=8),
}


def saved(config, folder, seed: int = 0) -> str:
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 1:  # biases of 0 and norms of 1 would hide that they are left out
                parameter.add_(0.3 * torch.randn(parameter.shape))
    model.save_pretrained(folder)
    return str(folder)


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, completion in one.items():
        assert completion.token_ids.tolist() == other[name].token_ids.tolist(), name
        assert completion.versions.tolist() == other[name].versions.tolist(), name
        np.testing.assert_allclose(completion.logprobs, other[name].logprobs, atol=2e-5)


@pytest.mark.parametrize("name", MODELS)
def test_every_kind_that_it_serves(name, tmp_path, backend, prompts, requests_of, drain):
    path = saved(MODELS[name], tmp_path)
    engines = [backend(path, prompts_per_forward=3, fused=fused) for fused in (True, False)]
    assert [isinstance(engine._path, FusedPath) for engine in engines] == [True, False]
    answers = []
    for engine in engines:
        requests = requests_of(prompts([3, 20, 9, 1, 12]), [2, 1, 5, 3, 1], Sampling(temperature=0.8))
        limits = [1 + (5 * place) % 17 for place in range(len(requests))]
        engine.submit(
            [replace(one, sampling=replace(one.sampling, max_new_tokens=limit)) for one, limit in zip(requests, limits, strict=True)]
        )
        answers.append(drain(engine))
    assert_same(*answers)


@pytest.mark.parametrize(
    ("config", "options"),
    [
        (GemmaConfig(**{key: value for key, value in SMALL.items() if key != "initializer_range"}), {}),
        (MODELS["qwen2"], {"dtype": "bfloat16"}),
        (MODELS["qwen2"], {"attention": "eager"}),
        (LlamaConfig(**SMALL, hidden_act="gelu"), {}),
    ],
)
def test_what_it_does_not_know_takes_the_plain_path(config, options, tmp_path, backend):
    assert not isinstance(backend(saved(config, tmp_path), **options)._path, FusedPath)


def driven(engine, steps, model, prompts, requests_of, snapshot_of, lengths, sizes):
    """Groups come, are cancelled and get new weights at the steps that ``steps`` says."""
    done, version = {}, 0
    groups = list(zip(prompts(lengths), sizes, strict=True))
    for number, step in enumerate(steps):
        if step == "submit" and groups:
            prompt, size = groups.pop()
            engine.submit(requests_of([prompt], [size], Sampling(max_new_tokens=3 + 2 * number), name=f"{number}-"))
        elif step == "cancel":
            engine.cancel([f"{earlier}-0-0" for earlier in range(number)])
        elif step == "update":
            version += 1
            update_engine(engine, snapshot_of(model, version, shift=0.02, seed=version))
        done |= {completion.request_id: completion for completion in engine.poll(0.0)}
    while completions := engine.poll(60.0):
        done |= {completion.request_id: completion for completion in completions}
    return done


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_groups_come_end_and_are_computed_again(data, qwen2, backend, plain, prompts, requests_of, snapshot_of):
    steps = data.draw(st.lists(st.sampled_from(["submit", "submit", "step", "cancel", "update"]), min_size=3, max_size=14))
    lengths = data.draw(st.lists(st.integers(1, 12), min_size=6, max_size=6, unique=True))
    sizes = data.draw(st.lists(st.integers(1, 4), min_size=6, max_size=6))
    answers = [
        driven(backend(qwen2, prompts_per_forward=2, fused=fused), steps, plain(qwen2), prompts, requests_of, snapshot_of, lengths, sizes)
        for fused in (True, False)
    ]
    assert_same(*answers)


def test_after_a_sleep_it_computes_by_the_new_weights(qwen2, backend, plain, prompts, requests_of, snapshot_of, drain):
    answers = []
    for fused in (True, False):
        engine = backend(qwen2, fused=fused)
        engine.sleep()
        engine.wake()
        update_engine(engine, snapshot_of(plain(qwen2), 1, shift=0.05))
        engine.submit(requests_of(prompts([6, 2]), [3, 2], Sampling(max_new_tokens=8)))
        answers.append(drain(engine))
    assert_same(*answers)


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(1, 3), st.integers(1, 3))
def test_rows_come_back_from_their_slots(slots, heads, size):
    _, slot = np.unique(slots, return_inverse=True)
    sharing = Sharing.of(slot, np.arange(1, slot.max() + 2), torch.device("cpu"))
    values = torch.arange(len(slot) * heads * size).view(len(slot), heads, 1, size)
    together = sharing.together(values)
    assert together.shape == (slot.max() + 1, heads, np.bincount(slot).max(), size)
    assert torch.equal(sharing.apart(together), values)
    assert sharing.visible.sum(1).tolist() == (slot + 1).tolist()
    for row, place in enumerate(slot):
        assert values[row, 0, 0].tolist() in together[place, 0].tolist()


@pytest.mark.parametrize(("name", "columns"), [("one head a query", 50), ("qwen2", 25)])
def test_a_row_attends_to_columns_enough_for_a_fast_product(name, columns):
    """400 multiplications: of 8 channels by 50 columns, and if two heads of queries share the keys by 25."""
    model = AutoModelForCausalLM.from_config(MODELS[name])
    assert FusedDecoder(model, max_tokens=16).fewest_columns == columns
