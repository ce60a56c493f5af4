"""The warning of a run whose sampler and trainer compute different models."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rlcore.config import Plan

__all__ = ["SamplerGap", "mean_gap_tolerance"]

_MEAN_GAP = {"float64": 1e-4, "float32": 1e-3, "bfloat16": 0.05, "float16": 0.02}


class SamplerGap:
    """Compares the log probabilities of sampler and trainer on fresh tokens, and warns once if they differ by more than rounding."""

    def __init__(self, plan: Plan, say: Callable[[str], None]) -> None:
        config = plan.config
        self._allowed = mean_gap_tolerance(config.inference.dtype, config.training.dtype)
        self._truncates = any(part.plan.config.sampling.truncates for part in plan.parts)
        self._say, self._warned = say, False

    def check(self, figures: Mapping[str, float]) -> None:
        """Look at the figures of an update."""
        gap = figures.get("sampler_gap", 0.0)
        fresh = figures.get("staleness/max") == 0 and figures.get("optimizer_steps") == 1  # otherwise the policy has changed meanwhile
        # A sampler that truncates its distribution has different log probabilities by design.
        if fresh and gap > self._allowed and not self._warned and not self._truncates:
            self._warned = True
            self._say(
                f"warning: the sampler's log probabilities of fresh tokens differ from the trainer's by {gap:.3g} nats on average, and at "
                f"most {self._allowed:g} is usual: check the inference backend (position ids, masks, temperature); see sampler_gap in "
                "metrics.jsonl"
            )


def mean_gap_tolerance(*dtypes: str) -> float:
    """Return the largest usual mean difference, in nats, between the log probabilities that computations of these dtypes give.

    The mean is over many tokens: rounding averages out, a wrong mask does not."""
    return max(_MEAN_GAP[dtype] for dtype in dtypes)
