"""The tokens that reduce the policy's entropy: their covariances over the global batch, and keyed draws among them. Pure numpy.

Source: The Entropy Mechanism of Reinforcement Learning (arXiv 2505.22617), section 4.2: a token's covariance is (A - mean A) * (log p -
mean log p), means over all M tokens that train. Nothing here depends on how the batch is split or ordered: means are exact sums, and draws
are keyed by the identity of a token.

Axes: ``N`` policy tokens of the batch, ``M`` of them train, ``K`` candidates of a draw.
"""

from __future__ import annotations

import hashlib
from math import fsum

import numpy as np

from rlcore.api import RunError, TrainBatch


def covariances(batch: TrainBatch) -> tuple[np.ndarray, np.ndarray]:
    """Return int64[M] positions of the tokens that train, and float64[M] their covariances under the old policy.

    Raises RunError if the batch has no old log probabilities: the losses declare that they need them (``Need.OLD``).
    """
    if batch.old_logprobs is None:
        raise RunError("covariances need the old policy's log probabilities, which the batch lacks (Need.OLD)")
    tokens = np.flatnonzero(np.repeat(batch.in_loss, batch.lengths))
    return tokens, _centred(batch.advantages[tokens]) * _centred(batch.old_logprobs[tokens])


def budget(share: float, tokens: int) -> int:
    """Return the number of tokens in a share: rounded down, at least one, 0 if there are no tokens."""
    return min(tokens, max(1, int(share * tokens)))


def draw(batch: TrainBatch, candidates: np.ndarray, count: int) -> np.ndarray:
    """Return int64[min(count, K)] of the candidates int64[K], uniformly at random: those with the smallest keyed numbers.

    The key of a token is (seed, version, prompt, rollout, token), so a draw is the same on every rank and for every order of rollouts.
    """
    rows = np.searchsorted(batch.offsets, candidates, side="right") - 1
    numbers = [_number(batch, int(row), int(token)) for row, token in zip(rows, candidates - batch.offsets[rows], strict=True)]
    return candidates[sorted(range(len(candidates)), key=numbers.__getitem__)[:count]]


def marks(batch: TrainBatch, chosen: np.ndarray) -> np.ndarray:
    """Return float32[N]: 1 at the chosen positions, else 0."""
    array = np.zeros(len(batch.advantages), np.float32)
    array[chosen] = 1.0
    return array


def _centred(values: np.ndarray) -> np.ndarray:
    """[M] -> float64[M], minus the mean; the sum is exact, so the order of the tokens does not matter."""
    exact = np.asarray(values, np.float64)
    return exact - fsum(exact.tolist()) / max(len(exact), 1)


def _number(batch: TrainBatch, row: int, token: int) -> bytes:
    rollout = batch.rollouts[row]
    key = f"{batch.seed},{batch.version},{rollout.index},{token},{rollout.prompt_id}"
    return hashlib.blake2b(key.encode(), digest_size=16).digest()
