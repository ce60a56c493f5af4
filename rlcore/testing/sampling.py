"""Drawing tokens with counter-based noise: token ``t`` of a request uses the ``t``-th number of the stream that the request names."""

from __future__ import annotations

import numpy as np

from rlcore.contracts.types import Sampling
from rlcore.testing.policy import log_softmax

__all__ = ["draw", "noise_stream"]


def noise_stream(noise: tuple[int, int, int, int]) -> np.random.Generator:
    """A Philox generator that is a function of (seed, episode, prompt, rollout) alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(noise)))


def _kept(logprobs: np.ndarray, sampling: Sampling) -> np.ndarray:
    """bool[V]: the most likely ``top_k`` tokens, of these the fewest whose probability reaches ``top_p``."""
    order = np.argsort(-logprobs, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    kept = rank < sampling.top_k if sampling.top_k > 0 else np.ones(len(order), bool)
    if sampling.top_p < 1.0:
        before = np.concatenate([[0.0], np.cumsum(np.exp(logprobs[order]))[:-1]])
        kept &= (before < sampling.top_p)[rank]
    return kept


def draw(logits: np.ndarray, sampling: Sampling, uniform: float) -> tuple[int, float]:
    """float64[V] -> (token, its log probability) by inverting the cumulative distribution at ``uniform`` in [0, 1).

    At temperature 0 the likeliest token, with its log probability at temperature 1.
    """
    if sampling.temperature == 0.0:
        best = int(logits.argmax())
        return best, float(log_softmax(logits)[best])
    logprobs = log_softmax(logits / sampling.temperature)
    if sampling.truncates:
        logprobs = log_softmax(np.where(_kept(logprobs, sampling), logprobs, -np.inf))
    cumulative = np.cumsum(np.exp(logprobs))
    token = int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right"))
    return token, float(logprobs[token])
