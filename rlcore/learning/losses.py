"""The clipped surrogate, its options, and the ratio that every loss of its family uses."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.batches import LossBatch
from rlcore.contracts.interfaces import Loss
from rlcore.learning.kl import RATIO_TANGENT, bounded_exp

if TYPE_CHECKING:
    import torch

__all__ = ["ClippedOptions", "ClippedSurrogate", "policy_ratio"]


def policy_ratio(logprobs: torch.Tensor, old_logprobs: torch.Tensor) -> torch.Tensor:
    """Return [n], [n] -> [n]: exp(logprobs - old_logprobs), along its tangent beyond 20 nats, so that it is finite and never flat."""
    return bounded_exp(logprobs - old_logprobs, RATIO_TANGENT)


class ClippedOptions(BaseModel):
    """Options of the clipped surrogate: the policy ratio is clipped to ``[1 - clip_eps_low, 1 + clip_eps_high]``."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    clip_eps_low: float = Field(default=0.2, gt=0.0, le=1.0, description="how far the ratio may fall below 1 before its gradient stops")
    clip_eps_high: float = Field(
        default=0.2, gt=0.0, allow_inf_nan=False, description="how far it may rise above 1 before its gradient stops"
    )
    dual_clip: Annotated[float, Field(gt=1.0, allow_inf_nan=False)] | None = Field(
        default=None, description="ratio beyond which a token of negative advantage loses its gradient too; unset: no dual clip"
    )


class ClippedSurrogate(Loss):
    """-min(ratio * A, clip(ratio, 1 - low, 1 + high) * A) per token; with a dual clip c at most -c * A if A < 0.

    Without the dual clip, a bad token that became much more likely keeps its gradient, in proportion to the ratio. That is PPO's own rule,
    and the gradient pulls the token back. Source: PPO (arXiv 1707.06347), equation 7; the two separate bounds: DAPO (arXiv 2503.14476),
    equation 10; dual clip: Mastering Complex Control in MOBA Games (arXiv 1912.09729), dual-clip PPO, there with c = 3.
    """

    def __init__(self, options: ClippedOptions | None = None) -> None:
        options = options or ClippedOptions()
        self.low, self.high, self.dual = 1.0 - options.clip_eps_low, 1.0 + options.clip_eps_high, options.dual_clip

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return [n] -> [n], and the clip fractions.

        ``clip_fraction`` counts the tokens whose gradient the clip stopped, ``clip_low`` and ``clip_high`` those at each bound.
        """
        ratio = policy_ratio(logprobs, batch.old_logprobs)
        free = ratio * batch.advantages
        held = ratio.clamp(self.low, self.high) * batch.advantages
        values, stopped = -free.minimum(held), held < free
        if self.dual is not None:
            most = -self.dual * batch.advantages
            beyond = (batch.advantages < 0) & (values > most)
            values, stopped = values.where(~beyond, most), stopped | beyond
        below = ratio < 1.0
        clipped = {"clip_fraction": stopped, "clip_low": stopped & below, "clip_high": stopped & ~below}
        return values, {name: where.to(ratio.dtype) for name, where in clipped.items()}
