"""The elementwise operations of a decoder layer, fused into a few operations with their own backward.

Each elementwise operation reads and writes tensors that do not fit into a CPU's cache. Without fusion, autograd would also keep its results
in memory for the backward pass.

Axes: ``T`` tokens, ``C`` channels, ``n`` heads of ``d`` channels.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.functional import silu

__all__ = ["gated", "rms_normed", "rotated", "signed"]


def rms_normed(values: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
    """Return the values [T, C], divided by their root mean square (Zhang and Sennrich, arXiv 1910.07467), times ``weight`` [C]."""
    result: torch.Tensor = _RmsNorm.apply(values, weight, epsilon)  # type: ignore[no-untyped-call]
    return result


def gated(gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
    """Return silu(gate) x up, [T, C] (Shazeer, arXiv 2002.05202); only its inputs are kept for the backward pass."""
    result: torch.Tensor = _Gated.apply(gate, up)  # type: ignore[no-untyped-call]
    return result


def rotated(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Return [T, n, d]: the two halves of each head rotated together (Su et al., arXiv 2104.09864).

    ``cosine`` [T, 1, d]; ``sine`` [T, 1, d] as returned by ``signed``.
    """
    result: torch.Tensor = _Rotated.apply(heads, cosine, sine)  # type: ignore[no-untyped-call]
    return result


def signed(sine: torch.Tensor) -> torch.Tensor:
    """Return [..., d] with the first half negated, so that the other half of a head is added with the right sign."""
    first, second = sine.chunk(2, dim=-1)
    return torch.cat((-first, second), dim=-1)


class _RmsNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: torch.Tensor, weight: torch.Tensor, epsilon: float) -> torch.Tensor:
        norm = torch.linalg.vector_norm(values, dim=-1, keepdim=True)
        inverse = norm.square_().div_(values.shape[-1]).add_(epsilon).rsqrt_()
        ctx.save_for_backward(values, weight, inverse)
        return (values * inverse).mul_(weight)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        values, weight, inverse = ctx.saved_tensors
        normed = values * inverse
        product = grad * normed
        along = torch.mv(product.flatten(0, -2), weight).view(*product.shape[:-1], 1).div_(values.shape[-1])
        return (grad * weight).sub_(normed.mul_(along)).mul_(inverse), product.flatten(0, -2).sum(0), None


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(gate, up)
        return silu(gate).mul_(up)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        gate, up = ctx.saved_tensors
        return torch.ops.aten.silu_backward(grad * up, gate), silu(gate).mul_(grad)


class _Rotated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(cosine, sine)
        return (heads * cosine).addcmul_(heads.roll(heads.shape[-1] // 2, dims=-1), sine)

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        cosine, sine = ctx.saved_tensors
        return (grad * cosine).add_((grad * sine).roll(grad.shape[-1] // 2, dims=-1)), None, None
