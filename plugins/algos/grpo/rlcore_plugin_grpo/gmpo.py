"""GMPO: the geometric mean over a response of the clipped token ratios.

Source: Geometric-Mean Policy Optimization (arXiv 2507.20673), section 3, equation 4 and algorithm 1.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AlgorithmSpec, Loss, LossBatch, LossSpec
from rlcore.learning import policy_ratio

if TYPE_CHECKING:
    import torch

_PAPER = "GMPO (arXiv 2507.20673)"


class GmpoOptions(BaseModel):
    """A token's LOG ratio is clamped to ``[-log_clip_low, log_clip_high]`` nats, so its ratio is within [exp(-low), exp(high)]."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    log_clip_low: float = Field(default=0.4, gt=0.0, description="nats that a token may fall below its old log probability")
    log_clip_high: float = Field(default=0.4, gt=0.0, description="nats that a token may rise above its old log probability")


LOSS = LossSpec(
    name="gmpo",
    target="rlcore_plugin_grpo.gmpo:GmpoLoss",
    config="rlcore_plugin_grpo.gmpo:GmpoOptions",
    summary="Geometric mean over a response of token ratios clamped in log space, pessimistic by the sign of the advantage",
    source=f"{_PAPER}, section 3",
    on_policy=False,
    sequence_ratio=True,
)


class GmpoLoss(Loss, spec=LOSS):
    """-A * exp(mean over the response of c), c the log ratio clamped to [-low, high] on the side on which the advantage would gain.

    The clamp is pessimistic by the sign of A: with A > 0, c = min(log w, clamped log w); with A < 0, the maximum. A token that has moved
    too far in the right direction loses its gradient; one that moved in the wrong direction always keeps it. Source: GMPO, equation 4 and
    algorithm 1.
    """

    def __init__(self, options: GmpoOptions | None = None) -> None:
        options = options or GmpoOptions()
        self.low, self.high = -options.log_clip_low, options.log_clip_high

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n]; ``clip_fraction`` counts tokens whose own log ratio the clamp changed."""
        log_ratio = logprobs - batch.old_logprobs
        clamped = log_ratio.clamp(self.low, self.high)
        pessimistic = log_ratio.minimum(clamped).where(batch.advantages > 0, log_ratio.maximum(clamped))
        ratio = policy_ratio(batch.row_mean(pessimistic), logprobs.new_zeros(()))
        stopped = (pessimistic != log_ratio) & (batch.advantages != 0)
        return -ratio * batch.advantages, {"clip_fraction": stopped.to(ratio.dtype)}


_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), as grpo
log ratio   d_t = log p(y_t) - log p_old(y_t);  b_t = clamp(d_t, -log_clip_low, log_clip_high)
pessimism   c_t = min(d_t, b_t) if A_i > 0, max(d_t, b_t) if A_i < 0
per token   l_t = -A_i exp(1/|o_i| sum over t of c_t), the same at every token of response i
loss        mean over the rollouts in the loss of the mean over their tokens (sample_level), which is the paper's mean over responses

Against GRPO: the geometric mean of a response's ratios instead of the arithmetic one; a clip of +-0.4 nats, [0.67, 1.49] as a ratio,
instead of [0.8, 1.2]; no KL. Against GSPO: tokens are clipped one by one inside the mean, not the mean.

Where others differ:
- verl's "geo_mean" also clamps the log ratio (its clip_ratio_low and clip_ratio_high are nats). It takes the mean of A over the row, and a
  plain mean over all rows, including fully masked ones, whatever loss_agg_mode is. Here these do not count.
- if A varies over tokens, each token's sign decides its own clamp, as there; a response's loss is mean(A_t) times its ratio.
- TRL and OpenRLHF have none. Beyond 20 nats of mean log ratio ours continues along the tangent.
"""

RECIPE = AlgorithmSpec(
    name="gmpo",
    summary="GRPO with the geometric mean of token ratios, clamped in log space",
    source=f"{_PAPER}, section 3",
    estimator="group_norm",
    loss="gmpo",
    defaults={
        "algorithm.loss_variation": ("sample_level", f"{_PAPER}, section 3: 1/G sum over i of a mean over the response"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 2.2: the penalty is left out"),
        "algorithm.options.log_clip_low": (0.4, f"{_PAPER}, section 3: the ratio within (e^-0.4, e^0.4)"),
        "algorithm.options.log_clip_high": (0.4, f"{_PAPER}, section 3: the ratio within (e^-0.4, e^0.4)"),
    },
    notes=_NOTES,
)
