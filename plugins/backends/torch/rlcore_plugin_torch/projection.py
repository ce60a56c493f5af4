"""Log probability and entropy of given tokens from hidden states, without ever holding the logits of all of them.

Both passes go over the tokens in chunks; the backward pass computes each chunk's logits again and adds its share of the gradients in
place, so that memory is one chunk of logits plus the gradients themselves. Softmax and its gradient are float32 also where hidden states
are bfloat16 (float64 stays float64); gradients of the projection are summed in that precision whatever the chunk.

Axes: ``n`` tokens, ``H`` hidden size, ``V`` vocabulary.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd.function import once_differentiable

__all__ = ["default_chunk", "token_logprobs"]

_LEAST_LOG_P = -1e30
"""In place of minus infinity, the log probability of a token that is ruled out: its term of the entropy is 0, and 0 * infinity is NaN."""


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
    """log softmax((hidden weight^T + bias) / temperature) at ``targets``, and the entropy of that distribution if asked.

    ``hidden`` [n, H], ``weight`` [V, H] (in any precision: it is projected in the precision of ``hidden``), ``bias`` [V] or None,
    ``targets`` int64[n]; ``temperature`` a number, or [n], one a token (it gets no gradient). Returns ([n], [n] or None) in float32, or
    float64 for float64 input; both differentiable once in ``hidden``, ``weight`` and ``bias``. ``chunk``: tokens at a time; by default as
    many as fit some megabytes of logits. Raises ValueError where temperatures are not one a token.
    """
    if isinstance(temperature, torch.Tensor):
        if temperature.shape != targets.shape:
            raise ValueError(f"temperature has shape {list(temperature.shape)}; it must be a number or one a token {list(targets.shape)}")
        temperature = temperature.detach().to(device=hidden.device, dtype=torch.promote_types(hidden.dtype, torch.float32))
    rows = chunk or default_chunk(int(weight.shape[0]), hidden.device)
    logprobs, entropies = _TokenLogprobs.apply(  # type: ignore[no-untyped-call]
        hidden, weight, bias, targets, temperature, entropy, rows
    )
    return logprobs, entropies


def default_chunk(vocabulary: int, device: torch.device) -> int:
    """Tokens whose float32 logits take 16 MB on a CPU (about its cache) and 512 MB elsewhere (enough to fill the device)."""
    elements = 2**22 if device.type == "cpu" else 2**27
    return max(1, elements // vocabulary)


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
        normaliser = hidden.new_empty(len(hidden), dtype=exact)
        logprobs = torch.empty_like(normaliser)
        entropy = torch.empty_like(normaliser) if with_entropy else None
        with torch.autocast(hidden.device.type, enabled=False):
            projection = weight.detach().to(hidden.dtype)
            for part in _chunks(len(hidden), chunk):
                logits = _logits(hidden[part], projection, bias, _divisor(temperature, part), exact)
                normaliser[part] = torch.logsumexp(logits, dim=-1)
                logprobs[part] = logits.gather(1, targets[part, None]).squeeze(1) - normaliser[part]
                if entropy is not None:
                    log_p = logits.sub_(normaliser[part, None]).clamp_(min=_LEAST_LOG_P)
                    entropy[part] = -(log_p.exp().mul_(log_p)).sum(-1)
        ctx.save_for_backward(hidden, weight, bias, targets, normaliser, entropy)
        ctx.temperature, ctx.chunk = temperature, chunk
        return logprobs, entropy

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_logprobs: torch.Tensor, grad_entropy: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        hidden, weight, bias, targets, normaliser, entropy = ctx.saved_tensors
        exact = normaliser.dtype
        needs_hidden, needs_weight, needs_bias = ctx.needs_input_grad[:3]
        grad_hidden = torch.empty_like(hidden) if needs_hidden else None
        grad_weight = torch.zeros_like(weight, dtype=exact) if needs_weight else None
        grad_bias = torch.zeros_like(bias, dtype=exact) if needs_bias else None
        with torch.autocast(hidden.device.type, enabled=False):
            projection = weight.detach().to(hidden.dtype)
            for part in _chunks(len(hidden), ctx.chunk):
                divisor = _divisor(ctx.temperature, part)
                log_p = _logits(hidden[part], projection, bias, divisor, exact).sub_(normaliser[part, None]).clamp_(min=_LEAST_LOG_P)
                grad = _grad_logits(log_p, targets[part], grad_logprobs[part], _part(grad_entropy, part), _part(entropy, part))
                grad /= divisor
                if grad_bias is not None:
                    grad_bias += grad.sum(0)
                grad = grad.to(hidden.dtype)
                if grad_hidden is not None:
                    torch.mm(grad, projection, out=grad_hidden[part])
                if grad_weight is not None:
                    _add_product(grad_weight, grad, hidden[part])
        return (
            grad_hidden,
            None if grad_weight is None else grad_weight.to(weight.dtype),
            None if grad_bias is None else grad_bias.to(bias.dtype),
            *(None,) * 4,
        )


def _chunks(n: int, chunk: int) -> list[slice]:
    return [slice(start, min(start + chunk, n)) for start in range(0, n, chunk)]


def _part(values: torch.Tensor | None, part: slice) -> torch.Tensor | None:
    return None if values is None else values[part]


def _divisor(temperature: float | torch.Tensor, part: slice) -> float | torch.Tensor:
    """What the logits of a chunk are divided by: a number, or [c, 1]."""
    return temperature[part, None] if isinstance(temperature, torch.Tensor) else temperature


def _logits(
    hidden: torch.Tensor, projection: torch.Tensor, bias: torch.Tensor | None, divisor: float | torch.Tensor, exact: torch.dtype
) -> torch.Tensor:
    logits = torch.mm(hidden, projection.t()).to(exact)
    if bias is not None:
        logits += bias.detach().to(exact)
    return logits.div_(divisor) if isinstance(divisor, torch.Tensor) or divisor != 1.0 else logits


def _grad_logits(
    log_p: torch.Tensor,
    targets: torch.Tensor,
    grad_logprobs: torch.Tensor,
    grad_entropy: torch.Tensor | None,
    entropy: torch.Tensor | None,
) -> torch.Tensor:
    """[c, V]: d log p(target) = onehot - p and d entropy = -p (log p + entropy), each times what arrives; ``log_p`` is used up."""
    p = log_p.exp()
    if grad_entropy is None or entropy is None:
        grad = p.mul_(-grad_logprobs[:, None])
    else:
        slope = log_p.add_(entropy[:, None]).mul_(grad_entropy[:, None]).add_(grad_logprobs[:, None])
        grad = slope.mul_(p).neg_()
    rows = torch.arange(len(targets), device=targets.device)
    grad[rows, targets] += grad_logprobs
    return grad


def _add_product(total: torch.Tensor, grad: torch.Tensor, hidden: torch.Tensor) -> None:
    """total[V, H] += grad[c, V]^T hidden[c, H], in place, in the precision of ``total``."""
    if total.dtype == grad.dtype:
        total.addmm_(grad.t(), hidden)
    else:
        total += torch.mm(grad.t(), hidden)
