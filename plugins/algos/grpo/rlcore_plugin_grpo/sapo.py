"""SAPO: a sigmoid gate on the ratio instead of a clip.

Source: Soft Adaptive Policy Optimization (arXiv 2511.20347), section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AlgorithmSpec, Loss, LossBatch, LossSpec
from rlcore.learning import policy_ratio

if TYPE_CHECKING:
    import torch

_PAPER = "SAPO (arXiv 2511.20347)"


class SapoOptions(BaseModel):
    """Temperatures of the gate: the larger, the sooner the gradient fades as the ratio leaves 1."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    tau_pos: float = Field(default=1.0, gt=0.0, description="gate temperature of tokens with a positive advantage")
    tau_neg: float = Field(default=1.05, gt=0.0, description="gate temperature of the other tokens")


LOSS = LossSpec(
    name="sapo",
    target="rlcore_plugin_grpo.sapo:SapoLoss",
    config="rlcore_plugin_grpo.sapo:SapoOptions",
    summary="Sigmoid-gated ratio times advantage: off-policy tokens fade instead of being clipped",
    source=f"{_PAPER}, section 3",
    on_policy=False,
)


class SapoLoss(Loss, spec=LOSS):
    """-(4 / tau) * sigmoid(tau * (ratio - 1)) * A per token, tau by the sign of A.

    At ratio 1 its derivative with respect to the log probability is -A, as for the unclipped surrogate. Source: SAPO, section 3.
    """

    def __init__(self, options: SapoOptions | None = None) -> None:
        options = options or SapoOptions()
        self.tau_pos, self.tau_neg = options.tau_pos, options.tau_neg

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n]; ``gate`` is the remaining share of the gradient of the ratio, 1 at ratio 1."""
        ratio = policy_ratio(logprobs, batch.old_logprobs)
        # Filled in the type of the log probabilities: where() of two Python floats would round the temperatures to float32.
        tau = logprobs.new_full(logprobs.shape, self.tau_neg).masked_fill(batch.advantages > 0, self.tau_pos)
        share = (tau * (ratio - 1.0)).sigmoid()
        return -4.0 / tau * share * batch.advantages, {"gate": 4.0 * share * (1.0 - share)}


_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), as grpo
ratio       w_t = exp(log p(y_t) - log p_old(y_t))
gate        f_t = (4 / tau) sigmoid(tau (w_t - 1)), tau = tau_pos if A_i > 0, else tau_neg
per token   l_t = -f_t A_i
gradient    w_t A_i times 4 s (1 - s), s = sigmoid(tau (w_t - 1)): 1 at w = 1, fading on both sides
loss        mean over the rollouts in the loss of the mean over their tokens (sample_level)

Against GRPO: the gate replaces the clip and acts on both sides whatever the sign of A; tau_neg > tau_pos fades tokens with a negative
advantage sooner; no KL.

Where others differ:
- verl always uses seq-mean-token-mean and ignores loss_agg_mode; here loss_variation decides.
- TRL rounds the temperatures to float32 (1.05 becomes 1.0499999523), a difference of about 1e-7; its mean counts fully masked rows.
- OpenRLHF has none.
"""

RECIPE = AlgorithmSpec(
    name="sapo",
    summary="GRPO with a smooth sigmoid gate on the ratio instead of the clip",
    source=f"{_PAPER}, section 3",
    estimator="group_norm",
    loss="sapo",
    defaults={
        "algorithm.loss_variation": ("sample_level", f"{_PAPER}, section 3: 1/G sum over i of 1/|y_i| sum over t"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 3: the objective has no penalty"),
        "algorithm.options.tau_pos": (1.0, f"{_PAPER}, section 5"),
        "algorithm.options.tau_neg": (1.05, f"{_PAPER}, section 5"),
    },
    notes=_NOTES,
)
