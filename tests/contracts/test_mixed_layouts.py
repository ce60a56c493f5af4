"""A real model on a batch of two sources has the gradient that is summed up by hand: packed or not, in any cut, on any layout of ranks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from mixed_ranks import Case, Stepped, step
from transformers import Qwen2Config
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from rlcore.testing.training.rank_processes import run_ranks
from tests.sources_by_hand import VOCABULARY, Told, log_probabilities, loss_by_hand, make_groups, near, who
from tests.tiny_qwen2 import SIZES

CUTS = {
    "one forward": Case(),
    "a rollout a forward": Case(rollouts=1),
    "five rollouts a forward": Case(rollouts=5),
    "packed": Case(packing="on"),
    "packed, five rollouts a forward": Case(packing="on", rollouts=5),
}
LAYOUTS = {
    "ddp2": Case(size=2, rollouts=3),
    "fsdp2, zero 2": Case(size=2, zero=2, rollouts=3),
    "fsdp2, zero 3, packed": Case(size=2, zero=3, rollouts=3, packing="on"),
    "tp2": Case(size=2, tensor=2, rollouts=3),
}
MESHES = {
    "2-D, zero 0": Case(size=4, tensor=2, rollouts=3),
    "2-D, zero 3": Case(size=4, tensor=2, zero=3, rollouts=3),
    "fsdp4, zero 3": Case(size=4, zero=3, rollouts=2),
}


@dataclass(frozen=True, kw_only=True)
class Hand:
    """A model, log probabilities near its own, and the gradient by hand."""

    model: str
    old: Told
    reference: Told
    gradient: dict[str, np.ndarray]
    loss: float


@pytest.fixture(scope="module")
def hand(tmp_path_factory: pytest.TempPathFactory) -> Hand:
    folder = str(tmp_path_factory.mktemp("model"))
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(Qwen2Config(**{**SIZES, "num_hidden_layers": 1}, tie_word_embeddings=True)).save_pretrained(folder)
    model = exact_model(folder)
    now, groups = log_probabilities(model), make_groups(VOCABULARY)
    old, reference = (near(now, groups, seed) for seed in (1, 2))
    losses = loss_by_hand(groups, {group.prompt_id for group in groups}, now, lambda one: old[who(one)], lambda one: reference[who(one)])
    total = torch.stack([*losses.values()]).sum()
    total.backward()
    gradient = {name: item.grad.numpy() for name, item in model.named_parameters() if item.grad is not None}
    return Hand(model=folder, old=old, reference=reference, gradient=gradient, loss=float(total.detach()))


def exact_model(folder: str) -> torch.nn.Module:
    """In float64 throughout."""
    model: torch.nn.Module = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float64, attn_implementation="sdpa")
    for name, module in list(model.named_modules()):
        if type(module).__name__ == "Qwen2RMSNorm":
            exact = torch.nn.RMSNorm(len(module.weight), eps=module.variance_epsilon, dtype=torch.float64)
            exact.weight.data.copy_(module.weight.data)
            model.set_submodule(name, exact)
    return model


def check(got: Stepped, hand: Hand) -> None:
    assert got.gradient.keys() == hand.gradient.keys()
    for name, gradient in hand.gradient.items():
        assert np.linalg.norm(got.gradient[name] - gradient) <= 1e-9 * np.linalg.norm(gradient), name
    assert got.metrics["loss"] == pytest.approx(hand.loss, rel=1e-9)


@pytest.mark.parametrize("case", CUTS.values(), ids=CUTS)
def test_cuts(case: Case, hand: Hand) -> None:
    got = step(0, case, "", hand.model, hand.old, hand.reference)
    check(got, hand)
    assert got.metrics["source/math/skipped_rollouts"] > 0
    assert 0 < got.metrics["source/talk/mismatch_cut"] < 1


@pytest.mark.full
@pytest.mark.timeout(300)
def test_two_ranks(hand: Hand) -> None:
    check_ranks(LAYOUTS, 2, hand)


@pytest.mark.full
@pytest.mark.timeout(560)
def test_four_ranks(hand: Hand) -> None:
    check_ranks(MESHES, 4, hand)


def check_ranks(cases: dict[str, Case], size: int, hand: Hand) -> None:
    ranks = run_ranks("mixed_ranks:session", size, cases, hand.model, hand.old, hand.reference, timeout=500.0 if size > 2 else 250.0)
    for name in cases:
        for answer in ranks:
            check(answer[name], hand)
            assert answer[name].metrics == ranks[0][name].metrics
