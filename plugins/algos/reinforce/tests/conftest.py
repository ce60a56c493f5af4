"""Ragged random batches: groups of one, equal rewards, empty and very long completions, rollouts out of the statistics."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from rlcore.api import RewardBatch
from rlcore.testing import make_reward_batch

EQUAL = (0.1, 0.7, float(np.float32(0.1)), float(np.float32(0.7)), -3.0)
LENGTHS = (0, 1, 2, 3, 5, 8, 40)


@dataclass(frozen=True)
class Row:
    """One rollout in plain Python floats, for the scalar formulas; ``kl`` has an entry a token."""

    reward: float
    group: int
    counts: bool
    kl: list[float]
    greedy: float


def random_batch(seed: int) -> RewardBatch:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, int(rng.integers(1, 6)))
    group = np.repeat(np.arange(len(sizes)), sizes)
    rewards = np.concatenate([np.full(n, rng.choice(EQUAL)) if rng.random() < 0.3 else rng.normal(0, 3, n) for n in sizes])
    lengths = rng.choice(LENGTHS, len(group))
    if seed % 5 == 0:
        lengths[0] = 300
    counts = rng.random(len(group)) < 0.8
    kl = rng.normal(0.1, 0.5, int(lengths.sum()))
    batch = make_reward_batch(rewards, group, in_statistics=counts, lengths=lengths, kl=kl, kl_coeff=float(rng.choice([0.0, 0.05, 1.0])))
    greedy = rng.normal(0, 3, len(sizes))
    greedy[rng.random(len(sizes)) < 0.2] = np.nan
    return replace(batch, greedy=greedy)


@pytest.fixture(scope="session")
def batches() -> list[RewardBatch]:
    return [random_batch(seed) for seed in range(40)]


def rows_of(batch: RewardBatch) -> list[Row]:
    assert batch.kl is not None
    assert batch.greedy is not None
    return [
        Row(
            reward=float(batch.rewards[i]),
            group=int(batch.group[i]),
            counts=bool(batch.in_statistics[i]),
            kl=[float(batch.kl[t]) for t in range(batch.offsets[i], batch.offsets[i + 1])],
            greedy=float(batch.greedy[batch.group[i]]),
        )
        for i in range(len(batch.rewards))
    ]


@pytest.fixture(scope="session")
def cases(batches: list[RewardBatch]) -> list[tuple[RewardBatch, list[Row]]]:
    return [(batch, rows_of(batch)) for batch in batches]


@pytest.fixture(scope="session")
def poisoned(batches: list[RewardBatch]) -> list[tuple[RewardBatch, RewardBatch]]:
    """Each batch twice: as it is, and with rewards and KL of what does not count not finite."""
    pairs = []
    for batch in batches:
        masked = ~np.repeat(batch.in_statistics, batch.lengths)
        rewards, kl = batch.rewards.copy(), np.array(batch.kl)
        rewards[~batch.in_statistics] = np.resize([np.nan, np.inf, -np.inf], int((~batch.in_statistics).sum()))
        kl[masked] = np.resize([np.inf, np.nan, -np.inf], int(masked.sum()))
        pairs.append((batch, replace(batch, rewards=rewards, kl=kl)))
    return pairs
