"""Clip-Cov: a few tokens of high covariance, drawn at random, do not train.

Source: The Entropy Mechanism of Reinforcement Learning (arXiv 2505.22617), section 4.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from pydantic import BaseModel, ConfigDict, Field, model_validator

from rlcore.api import AlgorithmSpec, Loss, LossBatch, LossSpec, Need, TrainBatch
from rlcore.learning import ClippedOptions, ClippedSurrogate
from rlcore_plugin_grpo.covariance import budget, covariances, draw, marks

if TYPE_CHECKING:
    import torch

_PAPER = "Clip-Cov (arXiv 2505.22617)"


class ClipCovOptions(BaseModel):
    """Options of Clip-Cov: the clip of the ratio, and the tokens that are also left out."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    clip_eps_low: float = Field(default=0.2, gt=0.0, le=1.0, description="how far the ratio may fall below 1 before its gradient stops")
    clip_eps_high: float = Field(default=0.2, gt=0.0, description="how far the ratio may rise above 1 before its gradient stops")
    clip_cov_share: float = Field(default=2e-4, gt=0.0, le=1.0, description="share of a batch's tokens that is left out, at least one")
    cov_low: float = Field(default=1.0, description="smallest covariance of a token that may be left out")
    cov_high: float = Field(default=5.0, description="largest covariance of a token that may be left out")

    @model_validator(mode="after")
    def _ordered(self) -> ClipCovOptions:
        if self.cov_low > self.cov_high:
            raise ValueError(f"cov_low {self.cov_low} is above cov_high {self.cov_high}; no covariance is between them")
        return self


LOSS = LossSpec(
    name="clip_cov",
    target="rlcore_plugin_grpo.clip_cov:ClipCovLoss",
    config="rlcore_plugin_grpo.clip_cov:ClipCovOptions",
    summary="Clipped surrogate without a few randomly drawn tokens of high covariance between advantage and log probability",
    source=f"{_PAPER}, section 4.2",
    on_policy=False,
    aliases=("clip-cov",),
)


class ClipCovLoss(Loss, spec=LOSS):
    """The clipped surrogate, 0 at the tokens that ``prepare`` drew; they stay in every denominator. Source: section 4.2."""

    needs = frozenset({Need.OLD})
    reads_tokens = False

    def __init__(self, options: ClipCovOptions | None = None) -> None:
        self.options = options or ClipCovOptions()
        clip = ClippedOptions(clip_eps_low=self.options.clip_eps_low, clip_eps_high=self.options.clip_eps_high)
        self.surrogate = ClippedSurrogate(clip)

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        """Return ``taken_out`` float32[N]: 1 at the drawn tokens, max(1, floor(share * M)) of those with cov_low <= covariance <=
        cov_high."""
        tokens, covariance = covariances(batch)
        candidates = tokens[(self.options.cov_low <= covariance) & (covariance <= self.options.cov_high)]
        count = budget(self.options.clip_cov_share, len(tokens))
        return {"taken_out": marks(batch, draw(batch, candidates, count))}

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """[n] -> [n]; ``taken_out`` counts the drawn tokens."""
        values, named = self.surrogate.per_token(logprobs, batch)
        taken_out = batch.extras["taken_out"].to(values.dtype)
        return values.masked_fill(taken_out > 0, 0.0), {**named, "taken_out": taken_out}


_NOTES = """\
advantage   A_i = (r_i - mean(r)) / (std(r) + 1e-4), as grpo
covariance  c_t = (A_t - mean A) (log p_old(y_t) - mean log p_old), means over the M tokens of the batch that train
drawn       max(1, floor(clip_cov_share M)) tokens, uniformly among those with cov_low <= c_t <= cov_high
per token   l_t = 0 if drawn, else -min(w_t A_i, clip(w_t, 1 - clip_eps_low, 1 + clip_eps_high) A_i), w_t the ratio as grpo
loss        sum over all tokens of the step / their number, including drawn ones (token_level)

Against GRPO: tokens that would cost most entropy (probable, with a positive advantage) are sometimes left out; token level; no KL.

The choice is made once per batch, before its first optimizer step, over the whole global batch, by numbers keyed with (seed, version,
prompt, rollout, token): it does not depend on micro-batches, ranks or order. Covariances are those of the old policy.

Where others differ:
- verl computes means and draw per micro-batch, with the current policy's log probabilities and an unseeded randperm, so the result depends
  on the split. It skips tokens that the ratio clip already stopped (not known before the forward) and uses open bounds. verl also has "at
  least one token": one per micro-batch there, one per batch here.
- the paper's equation 12 has no clip of the ratio; its listing 1, verl and ours have it, and the paper gives no number for it. TRL and
  OpenRLHF have neither loss.
"""

RECIPE = AlgorithmSpec(
    name="clip_cov",
    summary="GRPO that leaves out a few tokens of high covariance, to keep entropy",
    source=f"{_PAPER}, section 4.2",
    estimator="group_norm",
    loss="clip_cov",
    aliases=("clip-cov",),
    defaults={
        "algorithm.loss_variation": ("token_level", f"{_PAPER}, listing 1: the mean over all tokens"),
        "algorithm.kl_coeff": (0.0, f"{_PAPER}, section 4.1: a penalty to the reference lowers accuracy"),
        "algorithm.updates_per_batch": (8, f"{_PAPER}, section 4.3: eight policy updates a rollout batch"),
        "algorithm.options.clip_eps_low": (0.2, "the authors' code and verl"),
        "algorithm.options.clip_eps_high": (0.2, "the authors' code and verl"),
        "algorithm.options.clip_cov_share": (2e-4, f"{_PAPER}, section 4.3: r"),
        "algorithm.options.cov_low": (1.0, f"{_PAPER}, section 4.3: omega_low"),
        "algorithm.options.cov_high": (5.0, f"{_PAPER}, section 4.3: omega_high"),
    },
    notes=_NOTES,
)
