"""CISPO: the importance weight is clipped and detached, so every token keeps its gradient.

Source: MiniMax-M1 (arXiv 2506.13585), equations 4 and 5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AlgorithmSpec, Loss, LossBatch, LossSpec
from rlcore.learning import policy_ratio

if TYPE_CHECKING:
    import torch

_PAPER = "MiniMax-M1 (arXiv 2506.13585)"


class CispoOptions(BaseModel):
    """The weight is clipped to ``[1 - weight_eps_low, 1 + weight_eps_high]``: distances from 1, as in the paper. A ratio is above 0, so
    ``weight_eps_low`` 1 means that there is no lower bound."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    weight_eps_low: float = Field(default=1.0, gt=0.0, le=1.0, description="how far the weight may fall below 1; 1: no lower bound")
    weight_eps_high: float = Field(default=4.0, gt=0.0, description="how far the weight may rise above 1")


LOSS = LossSpec(
    name="cispo",
    target="rlcore_plugin_grpo.cispo:CispoLoss",
    config="rlcore_plugin_grpo.cispo:CispoOptions",
    summary="Log probability times advantage times a bounded, detached importance weight",
    source=f"{_PAPER}, equations 4 and 5",
    on_policy=False,
)


class CispoLoss(Loss, spec=LOSS):
    """-sg(clip(ratio, 1 - low, 1 + high)) * A * logprob per token: the policy gradient with a bounded importance weight.

    sg is the stop-gradient. Source: MiniMax-M1, equations 4 and 5.
    """

    def __init__(self, options: CispoOptions | None = None) -> None:
        options = options or CispoOptions()
        self.low, self.high = 1.0 - options.weight_eps_low, 1.0 + options.weight_eps_high

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n]; ``clip_fraction`` counts tokens whose weight was clipped (they keep their gradient)."""
        ratio = policy_ratio(logprobs.detach(), batch.old_logprobs)
        weight = ratio.clamp(self.low, self.high)
        return -weight * batch.advantages * logprobs, {"clip_fraction": (weight != ratio).to(ratio.dtype)}


_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), as grpo
weight      w_t = sg(clip(exp(log p(y_t) - log p_old(y_t)), 1 - weight_eps_low, 1 + weight_eps_high)); sg: stop gradient
per token   l_t = -w_t A_i log p(y_t)
loss        sum over all tokens of the step / their number (token_level)

Against GRPO: the clip bounds a weight and never stops a gradient, so rare tokens (however, wait) continue to learn; token level; no KL.

Bounds: the paper clips to [1 - eps_low, 1 + eps_high], leaves the lower side open and gives no number for the upper one. Ours are the
paper's distances from 1: weight_eps_high 4 caps the weight at 5, the cap of ScaleRL (arXiv 2510.13786).

Where others differ:
- TRL's epsilon_high is the ABSOLUTE cap on the ratio (its 5.0 is our 4.0); it has no lower clip, like our default.
- verl and NeMo-RL clip both sides to 1 +- eps, as here with weight_eps_low below 1; verl's 0.2 and 0.2 are the defaults of PPO. OpenRLHF
  has none.
- the value of this loss is not an objective whose derivative is its gradient: only the gradient matters.
"""

RECIPE = AlgorithmSpec(
    name="cispo",
    summary="Policy gradient with a clipped, detached importance weight; every token keeps its gradient",
    source=f"{_PAPER}, section 3.1",
    estimator="group_norm",
    loss="cispo",
    defaults={
        "algorithm.loss_variation": ("token_level", f"{_PAPER}, equation 4: 1 / sum of |o_i|"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 3.1: no KL term"),
        "algorithm.options.weight_eps_low": (1.0, f"{_PAPER}, section 3.1: no lower bound on the weight"),
        "algorithm.options.weight_eps_high": (4.0, "ScaleRL (arXiv 2510.13786) caps the weight at 5; the paper of CISPO gives no number"),
    },
    notes=_NOTES,
)
