"""What of a request SGLang 0.5.23 would draw otherwise than rlcore means it, or could not tell the log probabilities of."""

from __future__ import annotations

from typing import Any

from rlcore.api import Sampling

__all__ = ["KEPT", "run_problem", "unsupported"]

KEPT = 4096
"""Tokens of the set that top-k or top-p keep, at most; with these bounds log probabilities are told by SGLang over that set
(``return_sampling_mask``), whose size its ``sampling_mask_max_tokens`` bounds. A model of fewer tokens needs no such bound."""
COLDEST = 1e-5
"""SGLang takes a temperature below 1e-6 for greedy (sampling/sampling_params.py); logits divided by less than this overflow float32."""


def unsupported(sampling: Sampling, vocabulary: int) -> str:
    """What is wrong, and what to type instead; "" if it is served. ``vocabulary``: tokens of the model."""
    if not (sampling.temperature == 0 or sampling.temperature >= COLDEST):
        return f"temperature {sampling.temperature:g}; SGLang samples at {COLDEST:g} and more, and greedily at 0"
    if not sampling.temperature:
        return ""
    if sampling.top_k and sampling.top_p < 1:
        return (
            f"top-k {sampling.top_k} and top-p {sampling.top_p:g} together: SGLang takes top-p of the whole distribution, and rlcore of "
            "what top-k leaves; ask for one of them"
        )
    asked = min(sampling.top_k, vocabulary) or (vocabulary if sampling.top_p < 1 else 0)
    if asked > KEPT:
        said = f"top-k {sampling.top_k}" if sampling.top_k else f"top-p {sampling.top_p:g} over {vocabulary} tokens"
        return f"{said}: SGLang tells log probabilities over at most {KEPT} tokens; type --top-k {KEPT} or less, without top-p"
    return ""


def run_problem(config: Any) -> str:
    """Return a sentence on the sampling of a run whose engine is SGLang, "" if SGLang serves it."""
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
