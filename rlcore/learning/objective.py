"""The objective of one micro-batch: a loss per token, KL penalty, entropy bonus, skipped rollouts, and the sum to minimise.

It is a pure function of the last stage's output. The weights already include the normalisers of the whole optimizer step, so the sum over
all micro-batches of all ranks is the loss of the step. It does not know the model, the rewards or the division of the batch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from rlcore.contracts.batches import LossBatch, full_precision
from rlcore.contracts.errors import RlcoreError, RunError
from rlcore.contracts.interfaces import Loss, Need
from rlcore.contracts.loss_wrappers import Correction, KlEstimator
from rlcore.learning.assemble import undeclared
from rlcore.learning.kl import K3

if TYPE_CHECKING:
    import torch

__all__ = ["WEIGHT", "WEIGHT_SQUARED", "PolicyObjective"]

WEIGHT, WEIGHT_SQUARED = "sampler_weight", "sampler_weight_squared"
"""Metrics from which the consumer computes ``effective_sample_size``."""
_NEAR = (0.9, 1.1)
"""A ratio outside these bounds counts in ``ratio_outside``."""


@dataclass(kw_only=True)
class PolicyObjective:
    """The objective: a weighted sum over the rollouts that are not skipped.

    It is sum(weights * (correction * loss + kl_coeff * KL(policy || reference) - entropy_coeff * entropy)).

    ``name``: the name of the loss, for errors.
    ``skip_threshold``: a rollout with any token whose ratio exp(logprob - old) exceeds it contributes 0 to loss and gradient, stays in
        every denominator, and is counted.
    ``correction``: weights for data of another policy, None for 1.

    Metrics sum over micro-batches to the figure of the step. ``loss`` (the minimised sum) and ``policy_loss`` (without penalties) are
    aggregated as the loss is. ``skipped_rollouts`` is a count. The others are means over the step's policy tokens:

    ``ratio_mean``, ``ratio_outside``: the ratio, and the share of ratios outside 0.9 to 1.1.
    ``kl_old``: k3 of old against policy.
    ``sampler_gap``: the absolute difference to the sampler's log probabilities.
    ``sampler_weight``, ``sampler_weight_squared``: the inputs of ``effective_sample_size``.
    ``kl_reference``, ``entropy``: if computed.
    ``mismatch_weight``, ``mismatch_cut``: with a correction; the latter is the share of tokens on which the range acted.
    ``loss/<name>``: the figures that the loss itself reports.
    """

    loss: Loss
    name: str = "loss"
    kl_coeff: float = 0.0
    kl_kind: KlEstimator = field(default_factory=K3)
    entropy_coeff: float = 0.0
    skip_threshold: float | None = None
    correction: Correction | None = None

    needs: frozenset[Need] = field(init=False)
    """The loss's own needs, the reference for a KL penalty, the entropy for a bonus."""

    def __post_init__(self) -> None:
        if self.skip_threshold is not None and not self.skip_threshold > 1:
            raise ValueError(f"skip_threshold {self.skip_threshold} must be above 1: fresh data have a ratio of 1 and must train")
        reference = {Need.REFERENCE} if self.kl_coeff else set()
        entropy = {Need.ENTROPY} if self.entropy_coeff else set()
        self.needs = frozenset(self.loss.needs | reference | entropy)

    @property
    def whole_rollouts(self) -> bool:
        """Whether the tokens of a rollout are combined, so that all its segments must be in one forward."""
        combined = self.loss.whole_rollouts or self.loss.sequence_ratio or self.skip_threshold is not None
        return combined or (self.correction is not None and self.correction.per == "rollout")

    def __call__(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        """Return [n] -> scalar, metrics, at least in float32.

        Raise RunError if log probabilities, another needed input, or the loss's values are not finite, or if the loss returns another
        shape.
        """
        logprobs = full_precision(logprobs)
        self._check_inputs(logprobs, batch)
        skipped = _skipped(logprobs, batch, self.skip_threshold)
        # # The loss sees a skipped rollout as if it had not moved, so that nothing in it can overflow and poison the gradients of other
        # rollouts.
        safe = batch.old_logprobs.where(skipped, logprobs)
        per_token, reported = self._per_token(safe, batch)
        if self.correction is not None:
            who = f"mismatch correction {type(self.correction).__name__}"
            result = _asked(who, self.correction, "weights", _lend(batch)[0])
            if not (isinstance(result, tuple) and len(result) == 2):
                raise RunError(f"{who} returned a {type(result).__name__}; it must return its weights and its mask")
            _check_shapes(who, {"its weights": result[0], "its mask": result[1]}, logprobs)
            weights, cut = (values.detach() for values in result)
            if not weights.isfinite().all():
                raise RunError(f"{who} returned weights that are not finite")
            per_token = per_token * weights
            reported = {**reported, "mismatch_weight": weights, "mismatch_cut": cut}
        policy = _weighted(per_token, skipped, batch.weights)
        total = policy + self._penalties(safe, batch, skipped)
        return total, {"loss": total.detach(), "policy_loss": policy.detach(), **_diagnose(logprobs, batch, skipped, reported)}

    def _penalties(self, logprobs: torch.Tensor, batch: LossBatch, skipped: torch.Tensor) -> torch.Tensor:
        total = logprobs.new_zeros(())
        if self.kl_coeff and batch.reference_logprobs is not None:
            who = f"KL estimator {type(self.kl_kind).__name__}"
            penalty = _asked(who, self.kl_kind, "penalty", logprobs, batch.reference_logprobs)
            _check_shapes(who, {"its penalty": penalty}, logprobs)
            if not penalty.detach().isfinite().all():
                raise RunError(f"{who} returned a penalty that is not finite")
            if logprobs.requires_grad and not penalty.requires_grad:
                raise RunError(f"{who} is detached from the policy's log probabilities: its penalty would have no effect")
            total = total + self.kl_coeff * _weighted(penalty, skipped, batch.weights)
        if self.entropy_coeff and batch.entropy is not None:
            total = total - self.entropy_coeff * _weighted(batch.entropy, skipped, batch.weights)
        return total

    def _per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        lent, tensors = _lend(batch)
        result = _asked(f"loss {self.name!r}", self.loss, "per_token", logprobs, lent)
        if written := [name for name, tensor in tensors.items() if tensor._version]:
            raise RunError(
                f"loss {self.name!r} wrote into {', '.join(written)} of its batch, which must stay unchanged; compute with copies"
            )
        values, reported = result if isinstance(result, tuple) else (result, {})
        _check_shapes(f"loss {self.name!r}", {"its loss": values, **reported}, logprobs)
        if logprobs.requires_grad and not values.requires_grad:
            raise RunError(f"loss {self.name!r} is detached from the policy's log probabilities: it would train nothing")
        finite = values.detach().isfinite()
        if not finite.all():
            at = int((~finite).nonzero()[0])
            value, logprob, old = (float(item.detach()[at]) for item in (values, logprobs, batch.old_logprobs))
            raise RunError(
                f"loss {self.name!r} returned {value} for a token with log probability {logprob:.4g}, old {old:.4g} and advantage "
                f"{float(batch.advantages[at]):.4g}; losses must be finite"
            )
        return values, {f"loss/{name}": tensor for name, tensor in reported.items()}

    def _check_inputs(self, logprobs: torch.Tensor, batch: LossBatch) -> None:
        if not logprobs.detach().isfinite().all():
            raise RunError("the policy's log probabilities are not finite: the model has diverged; lower the learning rate")
        given = {Need.OLD: batch.old_logprobs, Need.REFERENCE: batch.reference_logprobs, Need.ENTROPY: batch.entropy}
        if self.correction is not None and not batch.rollout_logprobs.isfinite().all():
            raise RunError("the sampler's log probabilities are not finite, so mismatch_correction cannot compare with them")
        for need in sorted(self.needs):
            if (values := given[need]) is None:
                raise RunError(f"the objective with loss {self.name!r} needs {need.value} values, but the batch has none")
            if not values.detach().isfinite().all():
                raise RunError(
                    f"the objective with loss {self.name!r} needs {need.value} values, but those of the batch are not finite: their model "
                    "has diverged, or was loaded from weights that are not finite"
                )


def _asked(who: str, plugin: Any, method: str, *given: Any) -> Any:
    """Return the result of a plugin's method. Raise RunError, naming the plugin and the method, if it raises."""
    try:
        return getattr(plugin, method)(*given)
    except RlcoreError:
        raise
    except (Exception, SystemExit) as error:
        raise RunError(f"{who} failed in {method}: {type(error).__name__}: {error}{undeclared(error)}") from error


def _check_shapes(who: str, returned: Mapping[str, Any], like: torch.Tensor) -> None:
    for label, tensor in returned.items():
        if getattr(tensor, "shape", None) != like.shape:
            shape = f"shape {list(tensor.shape)}" if hasattr(tensor, "shape") else f"a {type(tensor).__name__}"
            expected = f"one value per token, a tensor of shape {list(like.shape)}"
            raise RunError(f"{who} returned {label} as {shape}; it must be {expected}")


def _lend(batch: LossBatch) -> tuple[LossBatch, dict[str, torch.Tensor]]:
    """Return a copy for the loss, and its tensors by name. Changes to the copy cannot reach the sum, and show in the tensors' versions."""
    tensors = {item.name: value.clone() for item in fields(batch) if hasattr(value := getattr(batch, item.name), "clone")}
    extras = {name: value.clone() for name, value in batch.extras.items()}
    held = {item.name: getattr(batch, item.name) for item in fields(batch)} | tensors | {"extras": extras}
    return (LossBatch if batch.whole else _Segments)(**held), {**tensors, **{f"extras[{name!r}]": value for name, value in extras.items()}}


class _Segments(LossBatch):
    """A micro-batch whose rows are segments. A loss or a correction that combines the tokens of its rows would be wrong, so it cannot."""

    __slots__ = ()

    def __getattribute__(self, name: str) -> Any:
        if name in ("row", "rows", "lengths", "row_sum", "row_mean"):
            raise AttributeError(
                f"{name} is not available, because the segments of a rollout are divided between forwards; a loss that combines the tokens "
                'of a rollout declares whole_rollouts = True, and a correction per = "rollout"'
            )
        return object.__getattribute__(self, name)


def _skipped(logprobs: torch.Tensor, batch: LossBatch, threshold: float | None) -> torch.Tensor:
    """Return bool[n]: True for tokens of rollouts in which some ratio exceeds the threshold."""
    if threshold is None:
        return logprobs.new_zeros(logprobs.shape).bool()
    beyond = (logprobs.detach() - batch.old_logprobs) > math.log(threshold)
    return batch.row_sum(beyond.to(logprobs.dtype)) > 0


def _weighted(values: torch.Tensor, skipped: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    return (weights * values.masked_fill(skipped, 0.0)).sum()


def _diagnose(
    logprobs: torch.Tensor, batch: LossBatch, skipped: torch.Tensor, reported: Mapping[str, torch.Tensor]
) -> dict[str, torch.Tensor]:
    tokens = batch.normalisers.tokens if batch.normalisers is not None else len(logprobs)
    moved = logprobs.detach() - batch.old_logprobs
    rows = logprobs.new_zeros(batch.rows).bool().index_fill(0, batch.row[skipped], True)
    ratio = moved.clamp(max=20.0).exp()
    weight = (logprobs.detach() - batch.rollout_logprobs).clamp(max=20.0).exp()
    means = {
        "ratio_mean": ratio,
        "ratio_outside": (ratio < _NEAR[0]) | (ratio > _NEAR[1]),
        WEIGHT: weight,
        WEIGHT_SQUARED: weight.square(),
        "kl_old": K3().estimate(batch.old_logprobs, logprobs.detach()),
        "sampler_gap": (logprobs.detach() - batch.rollout_logprobs).abs(),
        **{name: values.detach() for name, values in reported.items()},
    }
    if batch.reference_logprobs is not None:
        means["kl_reference"] = K3().estimate(logprobs.detach(), batch.reference_logprobs)
    if batch.entropy is not None:
        means["entropy"] = batch.entropy.detach()
    sums = {name: values.to(logprobs.dtype).sum() / max(tokens, 1) for name, values in means.items()}
    return {**sums, "skipped_rollouts": rows.sum()}
