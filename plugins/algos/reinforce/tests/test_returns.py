from __future__ import annotations

from dataclasses import replace

import numpy as np
from rlcore_plugin_reinforce.returns import penalty, reward_to_go, whiten

from rlcore.testing import make_reward_batch


def test_reward_to_go_by_hand_and_nothing_outside_the_statistics() -> None:
    batch = make_reward_batch(
        [5.0, 7.0, 9.0],
        [0, 0, 1],
        lengths=[3, 2, 0],
        in_statistics=[True, False, True],
        kl=[1.0, 2.0, 4.0, 8.0, 8.0],
        kl_coeff=0.5,
    )
    assert penalty(batch).tolist() == [0.5, 1.0, 2.0, 0.0, 0.0]
    assert reward_to_go(batch).tolist() == [1.5, 2.0, 3.0, 0.0, 0.0]
    assert reward_to_go(batch, gamma=0.5).tolist() == [-0.25, 0.5, 3.0, 0.0, 0.0]


def test_a_run_without_kl_in_the_reward_never_looks_at_it() -> None:
    batch = make_reward_batch([2.0], [0], lengths=[2], kl=[np.nan, np.inf], kl_coeff=0.0)
    assert reward_to_go(batch).tolist() == [2.0, 2.0]
    assert reward_to_go(replace(batch, kl=None, kl_coeff=0.5)).tolist() == [2.0, 2.0]


def test_whitening_by_hand() -> None:
    """Of 1, 3 and 5: mean 3, unbiased deviation 2; the fourth does not count."""
    values = whiten(np.array([1.0, 3.0, 5.0, 1e9]), np.array([True, True, True, False]))
    assert values.tolist() == [-2 / 2.0001, 0.0, 2 / 2.0001, 0.0]
    two = whiten(np.array([1.0, 3.0]), np.array([True, True]))
    assert two.tolist() == [-1 / (2**0.5 + 1e-4), 1 / (2**0.5 + 1e-4)]
    assert whiten(np.array([4.0]), np.array([True])).tolist() == [0.0]
    assert whiten(np.array([4.0]), np.array([False])).tolist() == [0.0]
