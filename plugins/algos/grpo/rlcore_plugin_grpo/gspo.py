"""GSPO: one ratio a response, the geometric mean of its token ratios, clipped as a whole.

Source: Group Sequence Policy Optimization (arXiv 2507.18071), equations 5 and 7.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AlgorithmSpec, Loss, LossBatch, LossSpec, RunError, TrainBatch
from rlcore.learning import policy_ratio

if TYPE_CHECKING:
    import torch

_PAPER = "GSPO (arXiv 2507.18071)"
_ROUNDING = 1e-5
"""Difference between the advantages of one response, as a share of the largest, below which they count as equal."""


class GspoOptions(BaseModel):
    """The sequence ratio is clipped to ``[1 - sequence_eps_low, 1 + sequence_eps_high]``. The names differ from those of the token clip of
    other losses, whose values are a thousand times larger."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    sequence_eps_low: float = Field(default=3e-4, gt=0.0, le=1.0, description="how far the sequence ratio may fall below 1")
    sequence_eps_high: float = Field(default=4e-4, gt=0.0, description="how far the sequence ratio may rise above 1")


LOSS = LossSpec(
    name="gspo",
    target="rlcore_plugin_grpo.gspo:GspoLoss",
    config="rlcore_plugin_grpo.gspo:GspoOptions",
    summary="Length-normalised sequence ratio times advantage, clipped to [1 - sequence_eps_low, 1 + sequence_eps_high]",
    source=f"{_PAPER}, equations 5 and 7",
    on_policy=False,
    sequence_ratio=True,
    one_advantage=True,
)


class GspoLoss(Loss, spec=LOSS):
    """-min(s * A, clip(s, 1 - low, 1 + high) * A) at every token, s = exp(mean over the response of logprob - old).

    The gradient goes through s, so every token of a response gets 1/|o| of it (equation 10). Source: equations 5 and 7.
    """

    reads_tokens = False

    def __init__(self, options: GspoOptions | None = None) -> None:
        options = options or GspoOptions()
        self.low, self.high = 1.0 - options.sequence_eps_low, 1.0 + options.sequence_eps_high

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        """Return nothing. Raises RunError if tokens of one response that trains have different advantages, beyond rounding."""
        for row in np.flatnonzero(batch.in_loss):
            own = batch.advantages[batch.offsets[row] : batch.offsets[row + 1]]
            if len(own) and np.ptp(own) > _ROUNDING * np.abs(own).max():
                raise RunError(
                    f"the loss gspo takes one advantage for a whole response, but those of rollout {batch.rollouts[row].index} of prompt "
                    f"{batch.rollouts[row].prompt_id!r} range from {own.min():.4g} to {own.max():.4g}; choose an estimator that gives one "
                    "per rollout, put the KL into the loss (--kl-in loss), or choose another --loss"
                )
        return {}

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n]; ``clip_fraction`` counts tokens of responses whose gradient the clip stopped."""
        ratio = policy_ratio(batch.row_mean(logprobs - batch.old_logprobs), logprobs.new_zeros(()))
        free = ratio * batch.advantages
        held = ratio.clamp(self.low, self.high) * batch.advantages
        return -free.minimum(held), {"clip_fraction": (held < free).to(ratio.dtype)}


_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), as grpo
ratio       s_i = exp(1/|o_i| sum over t of (log p(y_t) - log p_old(y_t)))
per token   l_t = -min(s_i A_i, clip(s_i, 1 - sequence_eps_low, 1 + sequence_eps_high) A_i), the same at every token of response i
loss        mean over the rollouts in the loss of the mean over their tokens (sample_level), which is the paper's mean over responses
gradient    through s_i: every token of response i moves by s_i A_i / |o_i|

Against GRPO: one ratio per response; bounds of 3e-4 and 4e-4, not 0.2, since s_i is a geometric mean; no KL. With one optimizer step on
fresh data s_i is 1 and GSPO is GRPO without its penalty, hence updates_per_batch 4.

GSPO-token (equations 13 and 14) replaces s_i by sg(s_i) w_t / sg(w_t), w_t the ratio of a token; sg: stop gradient. If A is one number per
response, it has the same value and gradient. If A varies over tokens (KL in the reward of a per-token estimator), the two differ, so that
is refused here. TRL, OpenRLHF and NeMo-RL differentiate the sequence ratio, so tokens share mean(A_t); verl's "gspo" is the token form.

Where others differ:
- verl: the token form; the log ratio capped at 10; the January 2026 snapshot ignores loss_agg_mode. Ours continues along the tangent beyond
  20 nats.
- OpenRLHF: with its sampler correction the ratio is relative to the sampler's log probabilities instead of the old ones.
- TRL: importance_sampling_level "sequence" with loss_type "grpo"; fully masked rows count in its mean.
"""

RECIPE = AlgorithmSpec(
    name="gspo",
    summary="GRPO with one length-normalised ratio a response, clipped as a whole",
    source=f"{_PAPER}, section 4",
    estimator="group_norm",
    loss="gspo",
    defaults={
        "algorithm.loss_variation": ("sample_level", f"{_PAPER}, equation 5: 1/G sum over i"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, equation 5: the penalty is left out"),
        "algorithm.updates_per_batch": (4, f"{_PAPER}, section 5.1: four mini-batches a rollout batch"),
        "algorithm.options.sequence_eps_low": (3e-4, f"{_PAPER}, section 5.1"),
        "algorithm.options.sequence_eps_high": (4e-4, f"{_PAPER}, section 5.1"),
    },
    notes=_NOTES,
)
