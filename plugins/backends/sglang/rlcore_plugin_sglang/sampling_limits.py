"""Requests that SGLang 0.5.23 would sample differently than rlcore defines, or for which it could not report the log probabilities."""

from __future__ import annotations

from typing import Any

from rlcore.api import Sampling

__all__ = ["KEPT", "run_problem", "unsupported"]

KEPT = 4096
"""The most tokens that top-k or top-p may keep.

With these limits SGLang reports log probabilities over the kept set (``return_sampling_mask``), whose size its ``sampling_mask_max_tokens``
bounds. A model with fewer tokens needs no such bound.
"""
COLDEST = 1e-5
"""SGLang treats a temperature below 1e-6 as greedy (sampling/sampling_params.py); logits divided by less than this overflow float32."""


def unsupported(sampling: Sampling, vocabulary: int) -> str:
    """Return the problem with a request and what to type instead; "" if it is supported. ``vocabulary``: tokens of the model."""
    if not (sampling.temperature == 0 or sampling.temperature >= COLDEST):
        return f"temperature {sampling.temperature:g}; SGLang samples at {COLDEST:g} or more, and greedily at 0"
    if not sampling.temperature:
        return ""
    if sampling.top_k and sampling.top_p < 1:
        return (
            f"top-k {sampling.top_k} and top-p {sampling.top_p:g} together: SGLang applies top-p to the whole distribution, but rlcore "
            "applies it after top-k; ask for only one of them"
        )
    asked = min(sampling.top_k, vocabulary) or (vocabulary if sampling.top_p < 1 else 0)
    if asked > KEPT:
        said = f"top-k {sampling.top_k}" if sampling.top_k else f"top-p {sampling.top_p:g} over {vocabulary} tokens"
        return f"{said}: SGLang reports log probabilities over at most {KEPT} tokens; type --top-k {KEPT} or less, without top-p"
    return ""


def run_problem(config: Any) -> str:
    """Return a sentence on the sampling of a run whose engine is SGLang; "" if SGLang supports it."""
    sampling = config.sampling
    for flag, value in {
        "--temperature": sampling.temperature,
        "--temperature-end": sampling.temperature_end,
        "--eval-temperature": config.eval.eval_temperature,
    }.items():
        if value is not None and (problem := unsupported(Sampling(temperature=value), 1)):
            return f"{flag}: {problem}"
    asked = Sampling(temperature=sampling.temperature, top_k=sampling.top_k, top_p=sampling.top_p)
    return unsupported(asked, 1)
