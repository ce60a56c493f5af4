"""Sliding windows: each layer sees what a forward pass of the model shows it, however long the rows are."""

from __future__ import annotations

import pytest
import torch
from rlcore_plugin_transformers import windows as module
from rlcore_plugin_transformers.windows import FULL, SLIDING, LayerWindows
from transformers import Gemma3TextConfig, LlamaConfig, MistralConfig, Qwen2Config
from transformers.cache_utils import DynamicLayer, DynamicSlidingWindowLayer
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import ConfigError, Sampling

SMALL = {
    "vocab_size": 258,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "initializer_range": 0.15,
}
MIXED = {"sliding_window": 8, "layer_types": [SLIDING, FULL]}


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        (LlamaConfig(**SMALL), LayerWindows()),
        (MistralConfig(**SMALL, sliding_window=None), LayerWindows()),
        (MistralConfig(**SMALL, sliding_window=63), LayerWindows(sliding=63)),
        (MistralConfig(**SMALL, sliding_window=64), LayerWindows()),
        (Qwen2Config(**SMALL, use_sliding_window=True, **MIXED), LayerWindows(sliding=8, mixed=True)),
        (Qwen2Config(**SMALL, use_sliding_window=False, sliding_window=8), LayerWindows()),
        (Gemma3TextConfig(**SMALL, sliding_window=8, layer_types=[SLIDING, SLIDING]), LayerWindows(sliding=8)),
    ],
)
def test_a_window_counts_if_a_sequence_can_outgrow_it(config, expected):
    assert LayerWindows.of(config, 64) == expected


@pytest.mark.parametrize(
    ("layers", "kinds"),
    [
        ([DynamicSlidingWindowLayer(8), DynamicSlidingWindowLayer(4)], [SLIDING, SLIDING]),
        ([DynamicSlidingWindowLayer(8), DynamicSlidingWindowLayer(4096)], [SLIDING, SLIDING]),
        ([DynamicSlidingWindowLayer(8), DynamicLayer()], None),
    ],
    ids=["two sizes", "one of which no sequence outgrows", "layers without names"],
)
def test_windows_that_one_mask_a_kind_cannot_hold_are_refused(layers, kinds, monkeypatch):
    monkeypatch.setattr(module, "DynamicCache", lambda config: type("Layers", (), {"layers": layers}))
    config = LlamaConfig(**SMALL)
    config.layer_types = kinds
    assert "sliding windows of several sizes" in LayerWindows.of(config, 64)


def test_a_mask_shows_the_newest_tokens_of_each_row_and_nothing_after_them():
    """Two rows that have come to columns 5 and 2, a window of 3."""
    positions, columns = torch.tensor([[5], [2]]), torch.arange(6)[None]
    visible = (columns <= positions)[:, None, None, :]
    masks = LayerWindows(sliding=3, mixed=True).masks(visible, positions, columns)
    assert masks[FULL] is visible
    assert masks[SLIDING].int().reshape(2, 6).tolist() == [[0, 0, 0, 1, 1, 1], [1, 1, 1, 0, 0, 0]]
    assert set(LayerWindows(sliding=3).masks(visible, positions, columns)) == {SLIDING}
    assert set(LayerWindows().masks(visible, positions, columns)) == {FULL}


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("max_tokens", [10, 30])
def test_the_start_compares_beyond_the_window(dtype, max_tokens, tmp_path, backend, monkeypatch):
    """A loop that forgets the window is found out before anything runs, and only by a prompt that outgrows it."""
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(MistralConfig(**{**SMALL, "initializer_range": 0.6}, sliding_window=8)).save_pretrained(tmp_path)
    backend(str(tmp_path), max_tokens=max_tokens, dtype=dtype)
    monkeypatch.setattr(LayerWindows, "masks", lambda self, visible, positions, columns: {FULL: visible})
    with pytest.raises(ConfigError, match=r"log probabilities differ by .* nats between decoding and a plain forward pass"):
        backend(str(tmp_path), max_tokens=max_tokens, dtype=dtype)


@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_rows_that_outgrow_the_window_do_not_depend_on_those_beside_them(attention, tmp_path, backend, requests_of, prompts, drain):
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(Qwen2Config(**SMALL, use_sliding_window=True, **MIXED)).save_pretrained(tmp_path)
    alone, together = (backend(str(tmp_path), prompts_per_forward=at_once, attention=attention) for at_once in (1, 8))
    requests = requests_of(prompts([3, 20, 9]), [2, 1, 3], Sampling(max_new_tokens=15))
    answers = []
    for engine in (alone, together):
        engine.submit(requests)
        answers.append(drain(engine))
    for name, completion in answers[0].items():
        assert completion.token_ids.tolist() == answers[1][name].token_ids.tolist()
        torch.testing.assert_close(torch.tensor(completion.logprobs), torch.tensor(answers[1][name].logprobs), atol=1e-5, rtol=0)
