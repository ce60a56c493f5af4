"""KL-Cov: a penalty keeps the tokens of highest covariance near the old policy.

Source: The Entropy Mechanism of Reinforcement Learning (arXiv 2505.22617), section 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import AlgorithmSpec, Loss, LossBatch, LossSpec, Need, TrainBatch
from rlcore.learning import policy_ratio
from rlcore_plugin_grpo.covariance import budget, covariances, draw, marks

if TYPE_CHECKING:
    import torch

_PAPER = "KL-Cov (arXiv 2505.22617)"


class KlCovOptions(BaseModel):
    """Options of KL-Cov: the penalised tokens, and the strength of the penalty."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    kl_cov_share: float = Field(default=2e-3, gt=0.0, le=1.0, description="share of a batch's tokens that is penalised, at least one")
    kl_cov_coeff: float = Field(default=1.0, ge=0.0, description="coefficient of the penalty on these tokens")


LOSS = LossSpec(
    name="kl_cov",
    target="rlcore_plugin_grpo.kl_cov:KlCovLoss",
    config="rlcore_plugin_grpo.kl_cov:KlCovOptions",
    summary="Unclipped ratio times advantage, with a penalty to the old policy on the tokens of highest covariance",
    source=f"{_PAPER}, section 4.2",
    on_policy=False,
    aliases=("kl-cov",),
)


class KlCovLoss(Loss, spec=LOSS):
    """-ratio * A per token, + coeff * |logprob - old| at the tokens that ``prepare`` chose; no clip. Source: section 4.2."""

    needs = frozenset({Need.OLD})
    reads_tokens = False

    def __init__(self, options: KlCovOptions | None = None) -> None:
        self.options = options or KlCovOptions()

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        """Return ``held`` float32[N]: 1 at the max(1, floor(share * M)) tokens of highest covariance; ties are broken at random."""
        tokens, covariance = covariances(batch)
        count = budget(self.options.kl_cov_share, len(tokens))
        if count == 0:
            return {"held": marks(batch, tokens)}
        # Tokens of probability 1 in answers of one group tie exactly; taking them in order would favour the batch's first rollouts.
        last = np.partition(covariance, len(tokens) - count)[len(tokens) - count]
        above, equal = tokens[covariance > last], tokens[covariance == last]
        return {"held": marks(batch, np.concatenate([above, draw(batch, equal, count - len(above))]))}

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n]; ``held`` counts the chosen tokens."""
        held = batch.extras["held"].to(logprobs.dtype)
        penalty = self.options.kl_cov_coeff * held * (logprobs - batch.old_logprobs).abs()
        return penalty - policy_ratio(logprobs, batch.old_logprobs) * batch.advantages, {"held": held}


_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), as grpo
covariance  c_t = (A_t - mean A) (log p_old(y_t) - mean log p_old), means over the M tokens of the batch that train
held        the max(1, floor(kl_cov_share M)) tokens with the largest c_t; ties are broken by a draw
per token   l_t = -w_t A_i, + kl_cov_coeff |log p(y_t) - log p_old(y_t)| if held; w_t the ratio as grpo, not clipped
loss        sum over all tokens of the step / their number (token_level)

Against GRPO: no clip; instead, a penalty pulls the tokens that would cost most entropy (probable, with a positive advantage) back to the
policy that sampled them; token level; no penalty to a reference model. The penalty is 0 and flat at ratio 1, so it acts from the second
optimizer step on a batch: hence updates_per_batch 8. With 1 and fresh data KL-Cov is a plain policy gradient.

The penalty: the paper's equation 14 has KL(old || policy). Its listing 1 and verl have the absolute log ratio as its estimate, with which
the coefficient 1 was tuned; so does this loss. Its gradient is +-coeff however small the deviation is, whereas k2 or k3 would fade.

The choice is made once per batch, before its first optimizer step, over the whole global batch: it does not depend on micro-batches, ranks
or order. Covariances are those of the old policy.

Where others differ:
- verl ranks within each micro-batch, by the current policy's log probabilities, so the result depends on the split; its default coefficient
  is 0.1 and its share 2e-4 (the paper's for 32B). "At least one token" means one per micro-batch there, one per batch here.
- the ratio has no clip, there and here, and dual_clip does not apply. verl's has no bound; ours continues along its tangent beyond 20 nats,
  so that it stays finite. --skip-threshold removes responses that drifted.
- the penalty counts in the mean over all tokens of the step, with the weight of the policy's own term. It is not kl_coeff, which holds all
  tokens near a reference model and stays 0.
- TRL, OpenRLHF and ColossalAI have neither loss.
"""

RECIPE = AlgorithmSpec(
    name="kl_cov",
    summary="Policy gradient that keeps the tokens of highest covariance near the old policy, to keep entropy",
    source=f"{_PAPER}, section 4.2",
    estimator="group_norm",
    loss="kl_cov",
    aliases=("kl-cov",),
    defaults={
        "algorithm.loss_variation": ("token_level", f"{_PAPER}, listing 1: the mean over all tokens"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 4.1: a penalty to the reference lowers accuracy"),
        "algorithm.updates_per_batch": (8, f"{_PAPER}, section 4.3: eight policy updates a rollout batch"),
        "algorithm.options.kl_cov_share": (2e-3, f"{_PAPER}, section 4.3: k for the 7B model; 2e-4 for 32B"),
        "algorithm.options.kl_cov_coeff": (1.0, f"{_PAPER}, section 4.3: beta"),
    },
    notes=_NOTES,
)
