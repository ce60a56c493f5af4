from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rlcore_plugin_torch.projection import default_chunk, token_logprobs


def inputs(n: int = 7, hidden: int = 5, vocabulary: int = 11, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(0)
    make = lambda *shape: torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()  # noqa: E731
    return make(n, hidden), make(vocabulary, hidden), make(vocabulary), torch.randint(0, vocabulary, (n,), generator=generator)


def naive(
    hidden: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None, targets: torch.Tensor, temperature: float | torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    logits = hidden @ weight.t() + (0 if bias is None else bias)
    log_p = (logits.to(torch.promote_types(logits.dtype, torch.float32)) / temperature).log_softmax(-1)
    return log_p.gather(1, targets[:, None]).squeeze(1), -(log_p.exp() * log_p).sum(-1)


EACH = torch.tensor([0.5, 1.0, 2.0, 0.7, 1.3, 1.0, 0.9], dtype=torch.float64)
"""One temperature a token."""


@pytest.mark.parametrize("temperature", [1.0, 0.6, 1.7, EACH], ids=["1", "0.6", "1.7", "each"])
@pytest.mark.parametrize("chunk", [1, 3, 7, 100, None])
@pytest.mark.parametrize("with_bias", [True, False])
def test_equals_naive_forward_and_backward(chunk: int | None, temperature: float | torch.Tensor, with_bias: bool) -> None:
    hidden, weight, bias, targets = inputs()
    leaves = (hidden, weight, bias) if with_bias else (hidden, weight)
    own = token_logprobs(hidden, weight, bias if with_bias else None, targets, temperature, entropy=True, chunk=chunk)
    divisor = temperature[:, None] if isinstance(temperature, torch.Tensor) else temperature
    reference = naive(hidden, weight, bias if with_bias else None, targets, divisor)
    factors = torch.linspace(-1, 2, len(targets), dtype=torch.float64)
    grads = [torch.autograd.grad((a * factors).sum() + (b.square() * factors).sum(), leaves) for a, b in (own, reference)]
    for mine, theirs in zip((*own, *grads[0]), (*reference, *grads[1]), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.8, EACH[:5]], ids=["0.8", "each"])
@pytest.mark.parametrize("chunk", [2, 7])
def test_gradcheck(chunk: int, temperature: float | torch.Tensor) -> None:
    hidden, weight, bias, targets = inputs(n=5, hidden=3, vocabulary=6)

    def function(*leaves: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return token_logprobs(*leaves, targets, temperature, entropy=True, chunk=chunk)

    assert torch.autograd.gradcheck(function, (hidden, weight, bias))
    assert torch.autograd.gradcheck(lambda *leaves: token_logprobs(*leaves, targets, temperature, chunk=chunk)[0], (hidden, weight, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_equal_temperatures_a_token_are_one_temperature(dtype: torch.dtype) -> None:
    """To the bit on a CPU, and each token's as if alone."""
    hidden, weight, bias, targets = inputs(dtype=dtype)
    one = token_logprobs(hidden, weight, bias, targets, 0.7, entropy=True)
    each = token_logprobs(hidden, weight, bias, targets, torch.full((7,), 0.7), entropy=True)
    for a, b in zip(one, each, strict=True):
        assert torch.equal(a, b)
    grads = [torch.autograd.grad(values[0].sum() + values[1].sum(), (hidden, weight, bias)) for values in (one, each)]
    for a, b in zip(*grads, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("shape", [(), (1,), (7, 1), (8,)])
def test_temperatures_of_another_shape_are_refused(shape: tuple[int, ...]) -> None:
    hidden, weight, bias, targets = inputs()
    with pytest.raises(ValueError, match=r"a number or have shape \[7\]"):
        token_logprobs(hidden, weight, bias, targets, torch.ones(shape))


def test_only_what_needs_a_gradient_gets_one() -> None:
    hidden, weight, _, targets = inputs()
    frozen = weight.detach()
    token_logprobs(hidden, frozen, None, targets)[0].sum().backward()
    assert hidden.grad is not None
    assert frozen.grad is None
    with torch.no_grad():
        assert not token_logprobs(hidden, weight, None, targets)[0].requires_grad


def test_entropy_only_if_asked() -> None:
    hidden, weight, bias, targets = inputs()
    assert token_logprobs(hidden, weight, bias, targets)[1] is None


def test_no_token_at_all() -> None:
    hidden, weight, bias, targets = inputs()
    logprobs, _ = token_logprobs(hidden[:0], weight, bias, targets[:0])
    logprobs.sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()


def test_bfloat16_is_softmaxed_and_summed_in_float32() -> None:
    """Against float32 arithmetic on the same rounded numbers: only the logits' own rounding (2^-9) is left."""
    hidden, weight, bias, targets = inputs(n=64, hidden=32, vocabulary=50, dtype=torch.bfloat16)
    logprobs, entropy = token_logprobs(hidden, weight, bias, targets, 0.9, entropy=True, chunk=16)
    assert logprobs.dtype == torch.float32
    assert entropy is not None
    assert entropy.dtype == torch.float32
    exact = naive(hidden.float(), weight.float(), bias.float(), targets, 0.9)
    assert float((logprobs - exact[0]).detach().abs().max()) < 0.2
    total = torch.zeros(64)
    for token in range(50):
        total += token_logprobs(hidden, weight, bias, torch.full((64,), token), 0.9, chunk=16)[0].exp().detach()
    torch.testing.assert_close(total, torch.ones(64), rtol=1e-5, atol=1e-5)


def test_float32_master_weight_under_bfloat16_hidden_gets_a_float32_gradient() -> None:
    hidden, weight, _, targets = inputs(dtype=torch.bfloat16)
    master = weight.detach().float().requires_grad_()
    token_logprobs(hidden, master, None, targets)[0].sum().backward()
    assert master.grad is not None
    assert master.grad.dtype == torch.float32
    assert hidden.grad is not None
    assert hidden.grad.dtype == torch.bfloat16


@pytest.mark.parametrize("scale", [1e4, 3e37])
def test_huge_logits_stay_finite(scale: float) -> None:
    hidden = torch.tensor([[1.0, 0.0], [0.0, 1.0]], requires_grad=True)
    weight = torch.tensor([[scale, 0.0], [0.0, -scale], [0.0, 0.0]])
    logprobs, entropy = token_logprobs(hidden, weight, None, torch.tensor([0, 2]), 1.0, entropy=True)
    assert entropy is not None
    (logprobs + entropy).sum().backward()
    for values in (logprobs, entropy, hidden.grad):
        assert values is not None
        assert torch.isfinite(values).all()


def test_a_block_shrinks_with_the_tokens_but_stays_a_matrix() -> None:
    cpu, card = torch.device("cpu"), torch.device("cuda")
    assert [default_chunk(tokens, cpu) for tokens in (0, 1, 512, 2048, 10**9)] == [2**22, 2**22, 8192, 2048, 256]
    assert default_chunk(16_384, card) == 8192


@pytest.mark.parametrize("chunk", [4, None])
def test_a_loss_over_sequences_gets_the_naive_gradient(chunk: int | None) -> None:
    """GSPO (arXiv 2507.18071), equation 7: each sequence has one ratio, the geometric mean of its tokens' ratios, clipped as a whole."""
    hidden, weight, bias, targets = inputs(n=12)
    row = torch.tensor([0] * 5 + [1] * 3 + [2] * 4)
    old = torch.linspace(-3, -1, 12, dtype=torch.float64)
    advantages = torch.tensor([1.5, -0.7, 0.4], dtype=torch.float64)

    def loss(logprobs: torch.Tensor) -> torch.Tensor:
        means = torch.zeros(3, dtype=torch.float64).index_add(0, row, logprobs - old) / torch.bincount(row)
        ratio = means.exp()
        return -torch.minimum(ratio * advantages, ratio.clamp(0.4, 1.1) * advantages).mean()

    own = token_logprobs(hidden, weight, bias, targets, 0.8, chunk=chunk)[0]
    both = [torch.autograd.grad(loss(values), (hidden, weight, bias)) for values in (own, naive(hidden, weight, bias, targets, 0.8)[0])]
    assert any(grad.any() for grad in both[1])
    for mine, theirs in zip(*both, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-10, atol=1e-12)


PEAK = Path(__file__).with_name("peak_memory.py")


def peak_of(way: str, entropy: str) -> float:
    """malloc gives back what is freed above a megabyte: by itself it keeps a freed chunk, or not, as the runs before differ."""
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": str(1 << 20)}
    words = [sys.executable, str(PEAK), way, entropy]
    result = subprocess.run(words, env=environment, check=True, capture_output=True, text=True, timeout=120)
    return float(result.stdout)


@pytest.mark.skipif(not Path("/proc/self/clear_refs").exists(), reason="the peak of a process is reset through /proc")
@pytest.mark.serial
def test_peak_memory_is_at_most_a_quarter_of_naive() -> None:
    """Vocabulary 65 536, 512 tokens, forward and backward: resident memory above what was there before, each in a process of its own.

    Ours computes the entropy as well, the naive way does not.
    """
    peaks = {}
    for way, entropy in (("naive", "plain"), ("chunked", "entropy")):
        peaks[way] = min(peak_of(way, entropy) for _ in range(2))  # the kernel's huge pages only add
    assert peaks["naive"] > 200, peaks
    assert peaks["chunked"] <= 0.25 * peaks["naive"], peaks


@pytest.mark.parametrize("chunk", [2, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_token_that_is_ruled_out_adds_nothing_to_entropy_and_gradients(dtype: torch.dtype, chunk: int | None) -> None:
    """Logits of minus infinity (a bias that masks the padding of the vocabulary): as if these tokens were not in the vocabulary."""
    hidden, weight, bias, targets = (leaf.detach().to(dtype) if leaf.is_floating_point() else leaf for leaf in inputs())
    kept = len(weight) - 2
    targets = targets % kept
    masked = torch.cat([bias[:kept], torch.full((2,), -torch.inf, dtype=dtype)])
    both = []
    for rows, shift in ((weight, masked), (weight[:kept], bias[:kept])):
        leaves = [leaf.clone().requires_grad_() for leaf in (hidden, rows, shift)]
        logprobs, entropy = token_logprobs(*leaves, targets, 0.7, entropy=True, chunk=chunk)
        assert entropy is not None
        grads = torch.autograd.grad((logprobs + 3.0 * entropy).sum(), leaves)
        both.append((logprobs, entropy, grads[0], *(grad[:kept] for grad in grads[1:])))
        assert not any(grad[kept:].any() for grad in grads[1:])
    for found, expected in zip(*both, strict=True):
        torch.testing.assert_close(found, expected)
