"""Sampling with counter-based noise: token ``t`` of a request uses number ``t`` of the stream that the request names."""

from __future__ import annotations

import numpy as np

from rlcore.contracts.types import Sampling
from rlcore.testing.policy import log_softmax

__all__ = ["BANNED", "draw", "kept_tokens", "noise_stream"]

BANNED = "banned"
"""The setting of the fake engine in ``Sampling.extra``: ids that it never draws."""


def noise_stream(noise: tuple[int, int, int, int]) -> np.random.Generator:
    """Return a Philox generator that is a function of (seed, episode, prompt, rollout) alone."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(noise)))


def _kept(logprobs: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Return bool[V]: of the tokens that are not banned the most likely ``top_k``, of these the fewest whose probability reaches ``top_p``,
    of these the ones at least ``min_p`` times as likely as the likeliest."""
    if banned := list(sampling.extra.get(BANNED, ())):
        logprobs = logprobs.copy()
        logprobs[banned] = -np.inf
        logprobs = log_softmax(logprobs)
    order = np.argsort(-logprobs, kind="stable")
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))
    kept = rank < sampling.top_k if sampling.top_k > 0 else np.ones(len(order), bool)
    if sampling.top_p < 1.0:
        left = np.exp(log_softmax(np.where(kept, logprobs, -np.inf))[order])
        before = np.concatenate([[0.0], np.cumsum(left)[:-1]])
        kept &= (before < sampling.top_p)[rank]
    if sampling.min_p > 0:
        kept &= logprobs >= logprobs.max() + np.log(sampling.min_p)
    kept[banned] = False
    return kept


def kept_tokens(logits: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Return int32: the tokens that the sampling keeps of float64[V] logits; none for all."""
    if not sampling.truncates or sampling.temperature == 0.0:
        return np.zeros(0, np.int32)
    return np.flatnonzero(_kept(log_softmax(logits / sampling.temperature), sampling)).astype(np.int32)


def draw(logits: np.ndarray, sampling: Sampling, uniform: float) -> tuple[int, float]:
    """Return float64[V] -> (token, its log probability) by inverting the cumulative distribution at ``uniform`` in [0, 1).

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
