"""Every layout of several ranks computes what one process computes: real processes over gloo, tiny models."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.layout import Layout
from torch_layout_bodies import session
from transformers import PretrainedConfig, Qwen2Config, Qwen3Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.api import RlcoreError
from rlcore.testing.rank_processes import run_ranks

LAYOUTS = {
    "ddp2": Layout(size=2),
    "fsdp2, zero 2": Layout(size=2, zero=2),
    "fsdp2, zero 3": Layout(size=2, zero=3),
    "tp2": Layout(size=2, tensor=2),
}
MESHES = {
    "2-D, zero 0": Layout(size=4, tensor=2),
    "2-D, zero 1": Layout(size=4, tensor=2, zero=1),
    "2-D, zero 3": Layout(size=4, tensor=2, zero=3),
    "fsdp4, zero 3": Layout(size=4, zero=3),
}


def tiny(folder: Path, config: PretrainedConfig) -> str:
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config)
    for name, weight in model.named_parameters():
        if "norm" in name:  # else those of q and k would be all alike
            weight.data += 0.2 * torch.randn_like(weight)
    model.save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="session")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """By name; vocabulary 97, which nothing divides."""
    sizes: dict[str, Any] = {
        "vocab_size": 97,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "initializer_range": 0.2,
        "pad_token_id": None,
        "bos_token_id": None,
        "eos_token_id": None,
    }
    folder = tmp_path_factory.mktemp("models")
    return {
        "qwen2 tied": tiny(folder / "qwen2", Qwen2Config(**sizes, tie_word_embeddings=True)),
        "qwen3 untied": tiny(folder / "qwen3", Qwen3Config(**sizes, head_dim=8, tie_word_embeddings=False)),
        "qwen2 with adapters": str(folder / "qwen2"),
    }


@pytest.fixture(scope="session")
def alone(models: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What one process does."""
    return session(0, 1, "", Layout(), models, str(tmp_path_factory.mktemp("alone")))


def difference(mine: dict[str, np.ndarray], theirs: dict[str, np.ndarray]) -> float:
    return math.hypot(*(float(np.linalg.norm(mine[name] - theirs[name])) for name in theirs))


def size_of(weights: dict[str, np.ndarray]) -> float:
    return math.hypot(*(float(np.linalg.norm(weight)) for weight in weights.values()))


CASES = [pytest.param(name, marks=pytest.mark.full) for name in LAYOUTS] + [
    pytest.param(name, marks=pytest.mark.nightly) for name in MESHES
]


@pytest.mark.parametrize("name", CASES)
def test_a_layout_is_one_process(name: str, models: dict[str, str], alone: dict[str, Any], tmp_path: Path) -> None:
    layout = {**LAYOUTS, **MESHES}[name]
    ranks = run_ranks("torch_layout_bodies:session", layout.size, layout, models, str(tmp_path), timeout=250.0)
    for answer in ranks:
        assert not isinstance(answer, RlcoreError), answer
    for key, one in alone.items():
        check_equal_to_one(layout, [answer[key] for answer in ranks], one, exact=key[1] == "float64")


def check_equal_to_one(layout: Layout, ranks: list[Any], one: Any, *, exact: bool) -> None:
    close = 1e-9 if exact else 1e-5
    assert [got.place for got in ranks] == [(rank // layout.tensor, layout.data) for rank in range(layout.size)]
    assert list(ranks[0].weights) == list(one.weights)
    assert all(np.array_equal(ranks[0].before[name], weight) for name, weight in one.before.items())
    for got in ranks:
        assert got.metrics == ranks[0].metrics, "the ranks report other figures"
        for mine, theirs in zip(got.metrics, one.metrics, strict=True):
            assert mine == pytest.approx(theirs, rel=close, abs=close)
        place = got.place[0]
        np.testing.assert_allclose(got.logprobs, one.logprobs if place == 0 else [], rtol=0, atol=1e-5)
        np.testing.assert_allclose(got.reference, one.reference if place == 0 else [], rtol=0, atol=1e-5)
        np.testing.assert_allclose(got.probed, one.probed, rtol=0, atol=1e-5 if exact else 1e-3)
        if layout.split:
            assert got.held < 0.75 * one.held
    if exact:
        assert difference(ranks[0].weights, one.weights) <= 1e-9 * size_of(one.weights)
    assert ranks[0].gradients.keys() == one.gradients.keys()
    for name, gradient in one.gradients.items():
        assert np.linalg.norm(ranks[0].gradients[name] - gradient) <= close * np.linalg.norm(gradient), name
