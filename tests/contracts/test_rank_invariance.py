"""The same update for one, two and four trainer ranks: real processes, gloo, a real tiny Qwen2, through the consumer on every rank.

The trainer by itself, in every layout: ``TrainingLayoutSuite``, and ``make bench-parity`` for float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping

import numpy as np
import pytest
import torch
from rank_update import GROUPS, VOCABULARY, Trained
from transformers import Qwen2Config, Qwen2ForCausalLM

from rlcore.testing.training.rank_processes import run_ranks

pytestmark = pytest.mark.full

STEPS = len(GROUPS) + 4
RanksOf = Callable[[int], Trained]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=64,
        intermediate_size=96,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        initializer_range=0.2,
        tie_word_embeddings=True,
        pad_token_id=None,
        bos_token_id=None,
        eos_token_id=None,
    )
    folder = tmp_path_factory.mktemp("model")
    Qwen2ForCausalLM(config).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def trained(model: str) -> RanksOf:
    """What rank 0 of a number of ranks ended with, after every rank was found to hold the same bits."""

    @functools.cache
    def end(size: int) -> Trained:
        first, *others = run_ranks("rank_update:train", size, model, timeout=240)
        for other in others:
            assert other.metrics == first.metrics
            for mine, theirs in zip(held(other), held(first), strict=True):
                assert all(np.array_equal(mine[name], theirs[name]) for name in theirs)
        return first

    return end


def held(one: Trained) -> list[dict[str, np.ndarray]]:
    return [one.weights, one.end, *one.gradients]


def off(mine: Mapping[str, np.ndarray], theirs: Mapping[str, np.ndarray]) -> float:
    """Norm of the difference over the norm, of all tensors together."""
    assert set(mine) == set(theirs)
    difference = sum(float(((mine[name].astype(np.float64) - theirs[name]) ** 2).sum()) for name in theirs)
    return float(np.sqrt(difference / sum(float((theirs[name].astype(np.float64) ** 2).sum()) for name in theirs)))


@pytest.fixture(scope="module")
def exact(trained: RanksOf) -> Trained:
    return trained(1)


@pytest.mark.parametrize("size", [2, 4])
def test_in_float64_gradients_and_weights_after_adamw_are_those_of_one_rank(trained: RanksOf, exact: Trained, size: int) -> None:
    ranks = trained(size)
    assert len(ranks.gradients) == len(exact.gradients) == STEPS
    for mine, theirs in zip(ranks.gradients, exact.gradients, strict=True):
        assert off(mine, theirs) < 1e-9
    for mine, theirs in zip(ranks.metrics, exact.metrics, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-9, abs=1e-12)
    assert off(ranks.weights, exact.weights) < 1e-9
    assert off(ranks.end, exact.end) < 1e-9


def test_what_they_compare_moved(exact: Trained) -> None:
    """Gradients are clipped, weights go far beyond the tolerance, and the second kind of update leaves old log probabilities behind."""
    assert max(metrics["grad_norm"] for metrics in exact.metrics) > 0.5
    assert exact.parts == {"forward", "backward", "optimizer"}
    assert exact.metrics[-1]["optimizer_steps"] == 4
    assert exact.metrics[-1]["kl_old"] > 1e-6
    assert exact.metrics[-1]["kl_reference"] > 1e-6
    assert off(exact.end, exact.weights) > 1e-4
