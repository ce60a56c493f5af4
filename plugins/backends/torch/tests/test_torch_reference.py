"""A reference that moves, in the torch backend: on every layout as in one process, and from a checkpoint of another layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlcore_plugin_torch.layout import Layout
from starting import started
from torch_layout_bodies import LORA, context_of
from torch_reference_bodies import begun, gone_on
from transformers import AutoModelForCausalLM, Qwen2Config

from rlcore.api import RunError
from rlcore.testing.training.rank_processes import run_ranks
from tests.tiny_qwen2 import SIZES, tiny_qwen2


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("model")
    AutoModelForCausalLM.from_config(Qwen2Config(**SIZES, tie_word_embeddings=True)).save_pretrained(folder)
    return str(folder)


def same(one: dict[str, Any], other: dict[str, Any], atol: float) -> None:
    for moment in ("saved", "moved"):
        assert one[moment].keys() == other[moment].keys()
        assert all(np.allclose(one[moment][name], weight, rtol=0, atol=atol) for name, weight in other[moment].items()), moment
    for moment in ("scored", "scored later"):
        assert np.allclose(one[moment], other[moment], rtol=0, atol=100 * atol), moment


def test_a_resumed_trainer_has_the_reference_to_the_bit(model: str, tmp_path: Path) -> None:
    straight = begun(0, 1, "", Layout(), model, str(tmp_path))
    assert any(not np.array_equal(straight["saved"][name], weight) for name, weight in straight["moved"].items())
    same(gone_on(0, 1, "", Layout(), model, str(tmp_path)), straight, 0.0)


@pytest.mark.full
@pytest.mark.timeout(300)
@pytest.mark.parametrize("layout", [Layout(size=2), Layout(size=2, zero=3), Layout(size=2, tensor=2)], ids=str)
def test_ranks_move_it_as_one_process_does_and_another_layout_goes_on(layout: Layout, model: str, tmp_path: Path) -> None:
    alone = begun(0, 1, "", Layout(), model, str(tmp_path / "alone"))
    ranks = run_ranks("torch_reference_bodies:begun", layout.size, layout, model, str(tmp_path / "ranks"), timeout=140.0)
    for rank in ranks:
        same(rank, alone, 2e-5)
    for rank in run_ranks("torch_reference_bodies:gone_on", layout.size, layout, model, str(tmp_path / "ranks"), timeout=140.0):
        same(rank, ranks[0], 0.0)
    same(gone_on(0, 1, "", Layout(), model, str(tmp_path / "ranks")), ranks[0], 2e-5)


def test_what_cannot_move_is_refused(model: str) -> None:
    backend = started(context_of(model, Layout(), 0, "", "float32", LORA))
    with pytest.raises(RunError, match=r"with adapters the reference is the model without them, .* type --reference-sync-steps 0"):
        backend.sync_reference(1.0)
    backend.close()
    backend = started(replace(context_of(model, Layout(), 0, "", "float32"), reference=str(tiny_qwen2())))
    with pytest.raises(
        RunError, match=r"the tensor 'model.embed_tokens.weight' is absent from one of them or has another shape; name a --ref"
    ):
        backend.sync_reference(1.0)
    backend.close()
