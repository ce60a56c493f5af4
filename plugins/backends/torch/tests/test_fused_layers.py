"""Attention that reads a prompt once, and layers in few operations, against plain ones in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_torch import attention, fused_layers, shared_attention
from rlcore_plugin_torch.activation_memory import store_activations, tokens_on_cpu
from rlcore_plugin_torch.elementwise import gated, rms_normed, rotated, signed
from rlcore_plugin_torch.fused_layers import fusible, unfuse
from rlcore_plugin_torch.packing import pack
from rlcore_plugin_torch.policy import CausalPolicy
from rlcore_plugin_torch.sample import sample_batch
from rlcore_plugin_torch.shared_attention import SharedTiles, has_shared
from test_packing import SIZES, VOCABULARY, difference, make_policy, plain_batch
from torch.nn.functional import scaled_dot_product_attention, silu

KINDS: dict[str, dict[str, Any]] = {
    "llama": {"attention_bias": True},
    "mistral": {"sliding_window": None},
    "qwen2": {},
    "qwen3": {},
}


@st.composite
def buffers(draw: st.DrawFn) -> np.ndarray:
    """Pieces of a buffer, [p, 4]: trees, of which some are single documents."""
    pieces, at = [], 0
    for _ in range(draw(st.integers(1, 5))):
        prompt = draw(st.integers(1, 9))
        branches = draw(st.lists(st.integers(1, 9), min_size=0, max_size=5))
        start = at
        pieces.append((0, 0, start, prompt))
        at += prompt
        for length in branches:
            pieces.append((start, prompt, at, length))
            at += length
    return np.array(pieces, np.int64)


def sees(pieces: np.ndarray) -> torch.Tensor:
    """bool[T, T]"""
    size = int((pieces[:, 2] + pieces[:, 3]).max())
    found = torch.zeros(size, size, dtype=torch.bool)
    for prefix_start, prefix, start, own in pieces.tolist():
        found[start : start + own, start : start + own] = torch.ones(own, own).tril().bool()
        found[start : start + own, prefix_start : prefix_start + prefix] = True
    return found


@settings(max_examples=60, deadline=None)
@given(pieces=buffers(), heads=st.sampled_from([(1, 1), (2, 2), (4, 2), (3, 1)]), seed=st.integers(0, 100))
def test_shared_attention_is_attention_over_what_each_token_sees(pieces: np.ndarray, heads: tuple[int, int], seed: int) -> None:
    mask = sees(pieces)
    generator = torch.Generator().manual_seed(seed)
    tensors = [3 * torch.randn(len(mask), count, 8, generator=generator, dtype=torch.float64) for count in (heads[0], heads[1], heads[1])]
    towards = torch.randn(len(mask), heads[0], 8, generator=generator, dtype=torch.float64)

    def plain(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
        swapped = (tensor.transpose(0, 1)[None] for tensor in (query, key, value))
        return scaled_dot_product_attention(*swapped, attn_mask=mask, scale=0.3, enable_gqa=True)[0].transpose(0, 1)

    found = []
    for way in (plain, lambda *leaves: shared_attention.shared_attention(*leaves, SharedTiles.of(*pieces.T), 0.3)):
        leaves = [tensor.clone().requires_grad_() for tensor in tensors]
        out = way(*leaves)
        (out * towards).sum().backward()
        found.append([out.detach(), *(leaf.grad for leaf in leaves)])
    for expected, computed in zip(*found, strict=True):
        torch.testing.assert_close(computed, expected, rtol=1e-9, atol=1e-9)


def test_a_tile_holds_little_padding() -> None:
    starts = np.cumsum([0, 100, 3, 3, 90, 3])
    lengths = np.array([100, 3, 3, 90, 3, 3])
    zeros = np.zeros(6, np.int64)
    tiles = SharedTiles.of(zeros, zeros, starts, lengths)
    assert sum(len(runs.index) for runs in tiles.own) <= 1.5 * lengths.sum()
    assert sorted(row for runs in tiles.own for row in runs.rows.tolist()) == list(range(202))
    assert not tiles.prefixes
    assert tiles.longest == 100


def test_torch_has_the_operations_that_attention_is_made_of() -> None:
    """If a new torch names them otherwise, packed attention goes on by tiles; then this says that it became slower."""
    for dtype in (torch.float32, torch.float64):
        query = torch.zeros(1, 2, 8, dtype=dtype)
        assert has_shared(query, query, query)
        assert not has_shared(query, query[..., :4], query)
    half = torch.zeros(1, 2, 8, dtype=torch.bfloat16)
    assert not has_shared(half, half, half)


def test_an_operation_that_computes_otherwise_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    real = shared_attention._forward
    monkeypatch.setattr(shared_attention, "_forward", lambda *given: [1.01 * part for part in real(*given)])
    shared_attention._tried.cache_clear()
    try:
        query = torch.zeros(1, 2, 8)
        assert not has_shared(query, query, query)
    finally:
        shared_attention._tried.cache_clear()


def test_the_gradients_of_elementwise_operations() -> None:
    generator = torch.Generator().manual_seed(0)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    cosine, sine = draw(3, 1, 8).detach(), draw(3, 1, 8).detach()
    torch.autograd.gradcheck(lambda values, weight: rms_normed(values, weight, 1e-5), (draw(3, 8), draw(8)))
    torch.autograd.gradcheck(lambda values, weight: rms_normed(values, weight, 1e-5), (draw(3, 2, 8), draw(8)))
    torch.autograd.gradcheck(gated, (draw(3, 8), draw(3, 8)))
    torch.autograd.gradcheck(lambda heads: rotated(heads, cosine, sine), (draw(3, 2, 8),))


def test_elementwise_operations_compute_what_their_papers_say() -> None:
    values = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    torch.testing.assert_close(rms_normed(values, torch.tensor([1.0, 2.0]).double(), 0.0), values / 12.5**0.5 * torch.tensor([1.0, 2.0]))
    torch.testing.assert_close(gated(values, values + 1), silu(values) * (values + 1))
    angle = torch.tensor(0.3, dtype=torch.float64)
    cosine, sine = (torch.stack([one, one])[None, None] for one in (angle.cos(), angle.sin()))
    turned = torch.stack([3 * angle.cos() - 4 * angle.sin(), 4 * angle.cos() + 3 * angle.sin()])
    torch.testing.assert_close(rotated(values[None], cosine, signed(sine))[0, 0], turned)


def gradients(policy: CausalPolicy) -> list[torch.Tensor]:
    """Log probabilities of a batch, and the gradients of a weighted sum of them."""
    policy.zero_grad()
    batch = sample_batch(VOCABULARY, contexts=(4, 3, 7))
    logprobs, _ = policy.logprobs(pack(batch, np.arange(len(batch))))
    (logprobs * torch.linspace(-1, 2, len(logprobs), dtype=logprobs.dtype)).sum().backward()
    return [logprobs.detach(), *(weight.grad.clone() for weight in policy.parameters() if weight.grad is not None)]


@pytest.mark.parametrize("kind", KINDS)
def test_fused_layers_compute_what_the_model_does(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(kind, **KINDS[kind])
    assert "forward" in vars(policy.model.model.layers[0])
    fused = gradients(policy)
    unfuse(policy.model)
    assert "forward" not in vars(policy.model.model.layers[0])
    monkeypatch.setattr(attention, "has_shared", lambda *_: False)
    for computed, expected in zip(fused, gradients(policy), strict=True):
        torch.testing.assert_close(computed, expected, rtol=1e-8, atol=1e-8)


def test_a_sliding_window_is_kept_by_tiles() -> None:
    policy = make_policy("mistral", sliding_window=3)
    batch = sample_batch(VOCABULARY, contexts=(4, 3, 7))
    packed = pack(batch, np.arange(len(batch)))
    policy.logprobs(packed)
    assert packed.attention.windows == {3}
    assert packed.attention.shared.longest > 3


def test_llama_passes_by_a_window_of_its_configuration() -> None:
    """As its own layers do; so forwards are packed only if a person says so, for ``try_packing`` sees that nothing asked for the window."""
    policy = make_policy("llama", packed=False, sliding_window=3)
    assert "sliding window" in policy.try_packing()
    policy.use_packing(fused=True)
    assert max(difference(policy, plain_batch([4, 30], [6, 1, 9]))) < 1e-10


def test_layers_that_are_run_again_give_the_same_gradients() -> None:
    policy = make_policy()
    kept = gradients(policy)
    store_activations(policy.model, "recompute")
    for computed, expected in zip(gradients(policy), kept, strict=True):
        assert torch.equal(computed, expected)


def test_a_model_that_computes_otherwise_is_packed_by_its_own_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kind whose layers do more than the fused ones."""
    monkeypatch.setattr(fused_layers, "_SERVED", frozenset({"granite"}))
    policy = make_policy("granite", packed=False, exact=False, residual_multiplier=0.5)
    assert fusible(policy.model)
    with torch.no_grad():
        assert "differ" in policy._why_not(fused=True)
    unfuse(policy.model)
    policy.model.set_attn_implementation("sdpa")
    assert policy.try_packing() == ""
    assert not policy.fused
    assert "forward" not in vars(policy.model.model.layers[0])


def test_only_known_kinds_in_full_precision_are_fused() -> None:
    assert fusible(make_policy(packed=False).model)
    assert not fusible(make_policy(packed=False, hidden_act="gelu").model)
    assert not fusible(make_policy(packed=False, attention_dropout=0.1).model)
    assert not fusible(make_policy("phi3", packed=False, exact=False).model)
    assert not fusible(make_policy(packed=False, exact=False).model.bfloat16())


def test_how_many_tokens_a_forward_has_on_a_cpu() -> None:
    """By hand: (8 x 32 + 3 x 48) x 2 layers x 4 bytes are 3200 a token; 128 MB of them are 41 943."""
    model = make_policy(packed=False).model
    assert (SIZES["hidden_size"], SIZES["intermediate_size"], SIZES["num_hidden_layers"]) == (32, 48, 2)
    assert tokens_on_cpu(model) == 41943
    model.config.num_hidden_layers = 48000
    assert tokens_on_cpu(model) == 512
