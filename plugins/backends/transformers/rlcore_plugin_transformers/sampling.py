"""Draw a token and its log probability from logits and one uniform number per row, by inverting the cumulative distribution.

Log probabilities are those of the distribution that was sampled: at the row's temperature, over the whole vocabulary, or over the set that
top-k, top-p or min-p keep. A greedy row (temperature 0) reports them at temperature 1, as the trainer computes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from rlcore.api import Sampling

__all__ = ["RowSettings", "draw"]


@dataclass(frozen=True, slots=True)
class RowLimits:
    """The limits of ``c`` truncated rows: ``top_k`` int64[c, 1], ``top_p`` float32[c, 1], ``log_min_p`` float32[c, 1], -inf for none."""

    top_k: torch.Tensor
    top_p: torch.Tensor
    log_min_p: torch.Tensor

    @classmethod
    def of(cls, samplings: Sequence[Sampling], device: torch.device) -> RowLimits:
        """Gather the limits of rows, in their order."""
        return cls(
            top_k=torch.tensor([sampling.top_k for sampling in samplings], device=device)[:, None],
            top_p=torch.tensor([sampling.top_p for sampling in samplings], dtype=torch.float32, device=device)[:, None],
            log_min_p=torch.tensor([sampling.min_p for sampling in samplings], dtype=torch.float32, device=device)[:, None].log(),
        )


@dataclass(frozen=True, slots=True)
class RowSettings:
    """The sampling settings of ``n`` rows as tensors on the device; None if no row needs one, which keeps the common case short.

    ``temperature`` float32[n, 1] (1 in greedy rows); ``greedy`` int64 row numbers; ``cut`` int64 numbers of truncated rows, with their
    ``limits``.
    """

    temperature: torch.Tensor | None
    greedy: torch.Tensor | None
    cut: torch.Tensor | None
    limits: RowLimits | None

    @classmethod
    def of(cls, samplings: Sequence[Sampling], device: torch.device) -> RowSettings:
        """Gather the settings of rows, in their order."""
        temperatures = [sampling.temperature or 1.0 for sampling in samplings]
        greedy = [row for row, sampling in enumerate(samplings) if sampling.temperature == 0]
        cut = [row for row, sampling in enumerate(samplings) if sampling.truncates and sampling.temperature != 0]
        plain = all(temperature == 1.0 for temperature in temperatures)
        return cls(
            temperature=None if plain else torch.tensor(temperatures, dtype=torch.float32, device=device)[:, None],
            greedy=torch.tensor(greedy, device=device) if greedy else None,
            cut=torch.tensor(cut, device=device) if cut else None,
            limits=RowLimits.of([samplings[row] for row in cut], device) if cut else None,
        )


def draw(logits: torch.Tensor, uniforms: torch.Tensor, settings: RowSettings) -> tuple[torch.Tensor, torch.Tensor]:
    """float32[n, V] logits and float64[n] uniforms in [0, 1) -> int64[n] tokens, float32[n] log probabilities."""
    scaled = logits if settings.temperature is None else logits / settings.temperature
    logprobs = torch.log_softmax(scaled, dim=-1)
    if settings.cut is not None and settings.limits is not None:
        logprobs = logprobs.index_copy(0, settings.cut, _cut(logprobs[settings.cut], settings.limits))
    cumulative = logprobs.exp().cumsum(dim=-1, dtype=torch.float64)
    threshold = uniforms[:, None] * cumulative[:, -1:]
    tokens = torch.searchsorted(cumulative, threshold, right=True).squeeze(1).clamp_(max=logits.shape[1] - 1)
    if settings.greedy is not None:
        tokens[settings.greedy] = logits[settings.greedy].argmax(dim=-1)
    return tokens, logprobs.gather(1, tokens[:, None]).squeeze(1)


def _cut(logprobs: torch.Tensor, limits: RowLimits) -> torch.Tensor:
    """Truncate and renormalise the log probabilities, float32[c, V].

    Keeps the ``top_k`` likeliest tokens (0: all). Of these keeps the fewest that hold ``top_p`` of the remaining probability, and of these
    the ones at least ``min_p`` times as likely as the likeliest. Of tokens with equal probability, ``top_k`` and ``top_p`` keep the lower
    ids.
    """
    top_k, top_p = limits.top_k, limits.top_p
    ordered, order = logprobs.sort(dim=-1, descending=True, stable=True)
    rank = torch.arange(ordered.shape[1], device=ordered.device)
    ordered = ordered.masked_fill((top_k > 0) & (rank >= top_k), float("-inf"))
    probabilities = torch.softmax(ordered, dim=-1)
    before = probabilities.cumsum(dim=-1) - probabilities
    ordered = ordered.masked_fill((top_p < 1) & (rank > 0) & (before >= top_p), float("-inf"))
    ordered = ordered.masked_fill(ordered < ordered[:, :1] + limits.log_min_p, float("-inf"))
    return torch.empty_like(logprobs).scatter_(1, order, torch.log_softmax(ordered, dim=-1))
