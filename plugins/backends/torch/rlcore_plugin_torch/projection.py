"""Log probability and entropy of given tokens from hidden states, without the logits of the whole vocabulary in memory.

Both passes compute the vocabulary in blocks. The forward pass keeps a running maximum and a running sum of exponentials for each token
(online softmax: Milakov and Gimelshein, arXiv 1805.02867). The backward pass computes the logits of each block again: the gradient first
needs that of the log probabilities, which a loss over sequences only knows at the end. A block of the vocabulary receives its whole
gradient at once, so no sum of the size of the projection is kept. Memory is one block of logits in addition to the gradients, and each pass
reads the projection once. Softmax and its gradient are float32 even if hidden states are bfloat16 (float64 stays float64). The gradient of
the hidden states is summed over the blocks in that precision.

Axes: ``n`` tokens, ``H`` hidden size, ``V`` vocabulary, ``v`` one block of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.autograd.function import once_differentiable

__all__ = ["default_chunk", "token_logprobs"]

_LEAST_LOG_P = -1e30
"""The log probability of a token that is ruled out, in place of minus infinity: its term of the entropy is 0, and 0 * infinity is NaN."""

_CPU_LOGITS, _DEVICE_LOGITS = 2**22, 2**27
"""Logits in memory at a time: 16 MB of float32 on a CPU, and 512 MB on other devices, enough to use a device fully.

On a CPU, less than a quarter of this is a tenth slower, and more is not faster (measured: ``make bench-logprobs ARGS=--sweep``).
"""

_LEAST_CHUNK = 256
"""Rows of the projection that an efficient matrix product needs; their logits are smaller than the hidden states of most models."""


def token_logprobs(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    targets: torch.Tensor,
    temperature: float | torch.Tensor = 1.0,
    *,
    entropy: bool = False,
    chunk: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return log softmax((hidden weight^T + bias) / temperature) at ``targets``, and the entropy of that distribution if asked.

    ``hidden`` [n, H], ``weight`` [V, H] in any precision (it is converted to that of ``hidden``), ``bias`` [V] or None, ``targets``
    int64[n]. ``temperature``: a number, or [n], one per token; it gets no gradient. ``chunk``: entries of the vocabulary at a time; the
    default suits the device.

    Returns ([n], [n] or None) in float32, or in float64 for float64 input; both are differentiable once in ``hidden``, ``weight`` and
    ``bias``. Raises ValueError if a temperature tensor does not have one value per token.
    """
    if isinstance(temperature, torch.Tensor):
        if temperature.shape != targets.shape:
            raise ValueError(f"temperature has shape {list(temperature.shape)}; it must be a number or have shape {list(targets.shape)}")
        temperature = temperature.detach().to(device=hidden.device, dtype=torch.promote_types(hidden.dtype, torch.float32))[:, None]
    chunk = chunk or default_chunk(len(hidden), hidden.device)
    logprobs, entropies = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, temperature, entropy, chunk
    )
    return logprobs, entropies


def default_chunk(tokens: int, device: torch.device) -> int:
    """Return the number of vocabulary entries whose logits are in memory at a time for this number of tokens."""
    elements = _CPU_LOGITS if device.type == "cpu" else _DEVICE_LOGITS
    return max(_LEAST_CHUNK, elements // max(1, tokens))


class _TokenLogprobs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        hidden: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        targets: torch.Tensor,
        temperature: float | torch.Tensor,
        with_entropy: bool,
        chunk: int,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        exact = torch.promote_types(hidden.dtype, torch.float32)
        softmax = _OnlineSoftmax(hidden.new_empty(len(hidden), dtype=exact), with_entropy)
        target_logits = torch.zeros_like(softmax.largest)
        with torch.autocast(hidden.device.type, enabled=False):
            for part, logits in _blocks(hidden, weight, bias, temperature, chunk, exact):
                place, inside = _places(targets, part)
                target_logits += torch.where(inside, logits.gather(1, place[:, None]).squeeze(1), 0)
                softmax.add(logits)
        normaliser = softmax.normaliser()
        entropy = softmax.entropy() if with_entropy else None
        ctx.save_for_backward(hidden, weight, bias, targets, normaliser, entropy)
        ctx.temperature, ctx.chunk = temperature, chunk
        return target_logits - normaliser, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logprobs: torch.Tensor, grad_entropy: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, bias, targets, normaliser, entropy = ctx.saved_tensors
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.zeros_like(hidden, dtype=normaliser.dtype) if needs_hidden else None
        grad_weight = torch.empty_like(weight) if needs_weight else None
        grad_bias = torch.empty_like(bias) if needs_bias else None
        with torch.autocast(hidden.device.type, enabled=False):
            for part, logits in _blocks(hidden, weight, bias, ctx.temperature, ctx.chunk, normaliser.dtype):
                log_p = logits.sub_(normaliser[:, None])
                grad = _grad_logits(log_p, *_places(targets, part), grad_logprobs, grad_entropy, entropy)
                if isinstance(ctx.temperature, torch.Tensor) or ctx.temperature != 1.0:
                    grad /= ctx.temperature
                if grad_bias is not None:
                    grad_bias[part] = grad.sum(0)
                grad = grad.to(hidden.dtype)
                if grad_hidden is not None:
                    _add_product(grad_hidden, grad, weight[part].detach().to(hidden.dtype))
                if grad_weight is not None:
                    _set_product(grad_weight[part], grad.t(), hidden)
        return None if grad_hidden is None else grad_hidden.to(hidden.dtype), grad_weight, grad_bias, *(None,) * 4


class _OnlineSoftmax:
    """Maximum, sum of exponentials, and sum of exponential times logit of each token, over the blocks seen so far. Shapes [n]."""

    def __init__(self, empty: torch.Tensor, with_entropy: bool) -> None:
        # The smallest number, not minus infinity: a block of logits that are all minus infinity would subtract infinity from infinity.
        self.largest = torch.full_like(empty, torch.finfo(empty.dtype).min)
        self.total = torch.zeros_like(empty)
        self.weighted = torch.zeros_like(empty) if with_entropy else None

    def add(self, logits: torch.Tensor) -> None:
        """Add ``logits`` [n, v], which are overwritten."""
        largest = torch.maximum(self.largest, logits.amax(1))
        shift = (self.largest - largest).clamp_(min=_LEAST_LOG_P)
        keep = shift.exp()
        logits -= largest[:, None]
        if self.weighted is None:
            self.total = self.total * keep + logits.exp_().sum(1)
        else:
            exponentials = logits.clamp_(min=_LEAST_LOG_P).exp()
            self.weighted = (self.weighted + shift * self.total) * keep + logits.mul_(exponentials).sum(1)
            self.total = self.total * keep + exponentials.sum(1)
        self.largest = largest

    def normaliser(self) -> torch.Tensor:
        """Return the log of the sum of exponentials."""
        return self.largest + self.total.log()

    def entropy(self) -> torch.Tensor:
        """Return the log of the sum minus the mean logit, both relative to the maximum."""
        assert self.weighted is not None
        return self.total.log() - self.weighted / self.total


def _blocks(
    hidden: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    temperature: float | torch.Tensor,
    chunk: int,
    exact: torch.dtype,
) -> Iterator[tuple[slice, torch.Tensor]]:
    """Yield (entries of the vocabulary, their logits [n, v] in ``exact``) for each block; the caller may overwrite the logits until the
    next block."""
    vocabulary = int(weight.shape[0])
    # All blocks use the same memory. Large allocations are returned to the system, and a new one costs one page fault per page.
    memory = hidden.new_empty(len(hidden) * min(chunk, vocabulary))
    for start in range(0, vocabulary, chunk):
        part = slice(start, min(start + chunk, vocabulary))
        logits = memory[: len(hidden) * (part.stop - part.start)].view(len(hidden), part.stop - part.start)
        torch.mm(hidden.detach(), weight[part].detach().to(hidden.dtype).t(), out=logits)
        logits = logits.to(exact)
        if bias is not None:
            logits += bias[part].detach().to(exact)
        if isinstance(temperature, torch.Tensor) or temperature != 1.0:
            logits /= temperature
        yield part, logits


def _places(targets: torch.Tensor, part: slice) -> tuple[torch.Tensor, torch.Tensor]:
    """Return ([n] column of each target in the block, [n] whether the target is in the block)."""
    place = targets - part.start
    inside = (place >= 0) & (place < part.stop - part.start)
    return place.clamp_(0, part.stop - part.start - 1), inside


def _grad_logits(
    log_p: torch.Tensor,
    place: torch.Tensor,
    inside: torch.Tensor,
    grad_logprobs: torch.Tensor,
    grad_entropy: torch.Tensor | None,
    entropy: torch.Tensor | None,
) -> torch.Tensor:
    """Return [n, v]: d log p(target) = onehot - p and d entropy = -p (log p + entropy), each times its incoming gradient.

    ``log_p`` is overwritten.
    """
    if grad_entropy is None or entropy is None:
        grad = log_p.exp_().mul_(-grad_logprobs[:, None])
    else:
        p = log_p.clamp_(min=_LEAST_LOG_P).exp()
        slope = log_p.add_(entropy[:, None]).mul_(grad_entropy[:, None]).add_(grad_logprobs[:, None])
        grad = slope.mul_(p).neg_()
    rows = torch.arange(len(place), device=place.device)
    grad[rows, place] += torch.where(inside, grad_logprobs, 0)
    return grad


def _add_product(total: torch.Tensor, grad: torch.Tensor, projection: torch.Tensor) -> None:
    """total[n, H] += grad[n, v] projection[v, H], in place, in the precision of ``total``."""
    if total.dtype == grad.dtype:
        total.addmm_(grad, projection)
    else:
        total += torch.mm(grad, projection)


def _set_product(target: torch.Tensor, grad: torch.Tensor, hidden: torch.Tensor) -> None:
    """target[v, H] = grad[v, n] hidden[n, H]."""
    if target.dtype == grad.dtype:
        torch.mm(grad, hidden, out=target)
    else:
        target.copy_(torch.mm(grad, hidden))
