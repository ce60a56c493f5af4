"""Episode order: a permutation that depends on (seed, episode) alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.schedule.prompt_order import episode_order

MASK = 2**64 - 1


def philox4x64(counter: int, key: tuple[int, int]) -> list[int]:
    """One block of Philox4x64-10, written after the paper (Salmon et al. 2011, section 4.3), to compare with."""
    c, k = [counter, 0, 0, 0], list(key)
    for _ in range(10):
        left, right = 0xD2E7470EE14C6C93 * c[0], 0xCA5A826395121157 * c[2]
        c = [(right >> 64) ^ c[1] ^ k[0], right & MASK, (left >> 64) ^ c[3] ^ k[1], left & MASK]
        k = [(k[0] + 0x9E3779B97F4A7C15) & MASK, (k[1] + 0xBB67AE8584CAA73B) & MASK]
    return c


@pytest.mark.parametrize(("n", "episode", "seed"), [(1, 0, 0), (7, 0, 3), (10, 5, 3), (33, 2, 2**64 - 1)])
def test_the_order_is_the_ranking_of_philox_words(n: int, episode: int, seed: int) -> None:
    words = [word for block in range(n) for word in philox4x64(block + 1, (seed, episode))][:n]
    assert episode_order(n, episode, seed, True).tolist() == sorted(range(n), key=lambda i: words[i])


@settings(deadline=None)
@given(st.integers(0, 200), st.integers(0, 50), st.integers(0, 2**63), st.booleans())
def test_the_order_is_a_permutation(n: int, episode: int, seed: int, shuffle: bool) -> None:
    order = episode_order(n, episode, seed, shuffle)
    assert order.dtype == np.int64
    assert sorted(order.tolist()) == list(range(n))


def test_episodes_and_seeds_differ_and_no_shuffle_is_the_file_s_order() -> None:
    orders = [tuple(episode_order(50, episode, seed, True)) for episode in range(4) for seed in range(4)]
    assert len(set(orders)) == 16
    assert episode_order(5, 3, 9, False).tolist() == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("arguments", [(-1, 0, 0, True), (3, -1, 0, True), (3, 0, -1, True), (3, 0, 2**64, True)])
def test_numbers_out_of_range_are_refused(arguments: tuple[int, int, int, bool]) -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        episode_order(*arguments)
