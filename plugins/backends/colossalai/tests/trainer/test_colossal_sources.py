"""A batch of two sources on the layouts of ColossalAI: the loss and the norm of the gradient are those that are summed up by hand."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, Qwen2Config

from rlcore.testing.training.rank_processes import run_ranks
from tests.sources_by_hand import VOCABULARY, log_probabilities, loss_by_hand, make_groups, near, who
from tests.tiny_qwen2 import SIZES

LAYOUTS: dict[str, dict[str, int]] = {"data 2": {}, "zero 2": {"zero_stage": 2}, "tensor 2": {"tensor_parallel": 2}}
LAYOUTS["pipeline 2"] = {"pipeline_parallel": 2}


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> tuple[tuple[Any, ...], float, float]:
    """The model and log probabilities near its own; the loss and the norm of its gradient, in float64."""
    folder = str(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(Qwen2Config(**{**SIZES, "vocab_size": 98}, tie_word_embeddings=True)).save_pretrained(folder)
    model = AutoModelForCausalLM.from_pretrained(folder, torch_dtype=torch.float64)
    now, groups = log_probabilities(model), make_groups(VOCABULARY)
    old, reference = (near(now, groups, seed) for seed in (1, 2))
    losses = loss_by_hand(groups, {group.prompt_id for group in groups}, now, lambda one: old[who(one)], lambda one: reference[who(one)])
    total = torch.stack([*losses.values()]).sum()
    total.backward()
    norm = torch.stack([item.grad.norm() for item in model.parameters() if item.grad is not None]).norm()
    return (folder, old, reference), float(total.detach()), float(norm)


@pytest.mark.full
@pytest.mark.timeout(200)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_layout_has_the_gradient_by_hand(
    layout: str, hand: tuple[tuple[Any, ...], float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parent)
    given, loss, norm = hand
    for answer in run_ranks("colossal_source_bodies:step", 2, LAYOUTS[layout], 3, *given, timeout=150.0):
        assert isinstance(answer, Mapping), answer
        assert answer["loss"] == pytest.approx(loss, abs=1e-6)
        assert answer["grad_norm"] == pytest.approx(norm, rel=1e-4)
        assert answer["source/math/skipped_rollouts"] > 0
        assert 0.0 < answer["source/talk/mismatch_cut"] < 1.0
