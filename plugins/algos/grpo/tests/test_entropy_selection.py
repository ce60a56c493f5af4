"""Which tokens Clip-Cov and KL-Cov choose: against scalar loops, whatever the order of the batch, and at the edges."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_grpo.clip_cov import ClipCovLoss, ClipCovOptions
from rlcore_plugin_grpo.covariance import budget, covariances, draw, marks
from rlcore_plugin_grpo.kl_cov import KlCovLoss, KlCovOptions

from rlcore.api import Need, RunError, TrainBatch
from rlcore.testing import make_rollout, make_train_batch

Token = tuple[str, int, int]


def make_batch(seed: int = 0, lengths: tuple[int, ...] = (5, 0, 1, 40, 7, 3), *, ties: bool = False) -> TrainBatch:
    """Two rollouts a prompt, the fifth out of the loss."""
    chance = random.Random(seed)
    logprobs = [[0.0 if ties else chance.uniform(-4, 0) for _ in range(length)] for length in lengths]
    rollouts = [
        make_rollout([1], [2] * length, logprobs=logprobs[row], prompt_id=f"p{row // 2}", index=row % 2)
        for row, length in enumerate(lengths)
    ]
    advantages = [1.5 if ties else chance.gauss(0, 1.5) for _ in lengths]
    batch = make_train_batch(rollouts, advantages, in_loss=[row != 4 for row in range(len(lengths))])
    old = batch.rollout_logprobs + np.array([chance.gauss(0, 0.0 if ties else 0.3) for _ in batch.rollout_logprobs], np.float32)
    return replace(batch, old_logprobs=old)


def with_old(*args: Any, **kwargs: Any) -> TrainBatch:
    """A batch whose old policy is the sampler."""
    batch = make_train_batch(*args, **kwargs)
    return replace(batch, old_logprobs=batch.rollout_logprobs)


def tokens_of(batch: TrainBatch) -> list[Token]:
    return [(rollout.prompt_id, rollout.index, place) for rollout in batch.rollouts for place in range(rollout.length)]


def chosen(batch: TrainBatch, values: np.ndarray) -> set[Token]:
    assert set(values.tolist()) <= {0.0, 1.0}
    return {token for token, value in zip(tokens_of(batch), values, strict=True) if value}


def scalar_covariances(batch: TrainBatch) -> dict[Token, float]:
    """Section 4.2, token by token, over the tokens that train."""
    assert batch.old_logprobs is not None
    old = batch.old_logprobs
    rows = [(token, float(batch.advantages[i]), float(old[i])) for i, token in enumerate(tokens_of(batch)) if token[:2] != ("p2", 0)]
    mean_advantage = sum(row[1] for row in rows) / len(rows)
    mean_logprob = sum(row[2] for row in rows) / len(rows)
    return {token: (advantage - mean_advantage) * (logprob - mean_logprob) for token, advantage, logprob in rows}


@pytest.mark.parametrize("seed", range(5))
def test_covariances_against_scalar_loops(seed: int) -> None:
    batch = make_batch(seed)
    positions, values = covariances(batch)
    got = {tokens_of(batch)[position]: value for position, value in zip(positions, values, strict=True)}
    assert got == pytest.approx(scalar_covariances(batch), rel=1e-9, abs=1e-9)


def test_old_log_probabilities_are_asked_for_and_their_absence_is_an_error() -> None:
    assert KlCovLoss.needs == ClipCovLoss.needs == {Need.OLD}
    with pytest.raises(RunError, match=r"Need\.OLD"):
        covariances(replace(make_batch(), old_logprobs=None))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [1e-4, 0.05, 0.3, 1.0])
def test_kl_cov_holds_the_highest(seed: int, share: float) -> None:
    batch = make_batch(seed)
    expected = scalar_covariances(batch)
    count = max(1, int(len(expected) * share))
    held = chosen(batch, KlCovLoss(KlCovOptions(kl_cov_share=share)).prepare(batch)["held"])
    assert held == set(sorted(expected, key=lambda token: -expected[token])[:count])


def test_kl_cov_holds_the_highest_of_many() -> None:
    """Enough tokens that a partial sort is partial: a bound taken at the wrong place would hold too many."""
    batch = make_batch(1, (700, 300, 0, 900, 7, 600))
    expected = scalar_covariances(batch)
    for share in (0.02, 0.3, 0.9):
        held = chosen(batch, KlCovLoss(KlCovOptions(kl_cov_share=share)).prepare(batch)["held"])
        assert held == set(sorted(expected, key=lambda token: -expected[token])[: int(len(expected) * share)])


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("share", [1e-4, 0.1, 1.0])
def test_clip_cov_draws_from_the_band(seed: int, share: float) -> None:
    batch = make_batch(seed)
    expected = scalar_covariances(batch)
    band = {token for token, value in expected.items() if 0.2 <= value <= 1.0}
    options = ClipCovOptions(clip_cov_share=share, cov_low=0.2, cov_high=1.0)
    taken_out = chosen(batch, ClipCovLoss(options).prepare(batch)["taken_out"])
    assert taken_out <= band
    assert len(taken_out) == min(len(band), max(1, int(len(expected) * share)))


def test_the_band_is_closed() -> None:
    """Advantages +-1 and log probabilities +-1 about their means: every covariance is exactly 1 or -1."""
    rollouts = [make_rollout([1], [2, 2], logprobs=[-1.0, -3.0], index=index) for index in range(2)]
    batch = with_old(rollouts, [1.0, -1.0], group=[0, 0])
    for low, high in ((1.0, 5.0), (0.0, 1.0)):
        options = ClipCovOptions(clip_cov_share=1.0, cov_low=low, cov_high=high)
        assert ClipCovLoss(options).prepare(batch)["taken_out"].tolist() == [1.0, 0.0, 0.0, 1.0]


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_the_choice_does_not_depend_on_the_order_of_rollouts(seed: int, ties: bool) -> None:
    batch = make_batch(seed, (9, 4, 0, 30, 6, 11), ties=ties)
    moved = batch.take(np.random.default_rng(seed).permutation(len(batch)))
    clip = ClipCovLoss(ClipCovOptions(clip_cov_share=0.1, cov_low=0.0, cov_high=1.0))
    held = KlCovLoss(KlCovOptions(kl_cov_share=0.1))
    for loss, name in ((clip, "taken_out"), (held, "held")):
        one = chosen(batch, loss.prepare(batch)[name])
        assert one == chosen(moved, loss.prepare(moved)[name])
        assert len(one) == 5


def test_draws_change_with_seed_and_version_and_nothing_else() -> None:
    batch = make_batch(ties=True, lengths=(200, 200))
    tokens = np.arange(400)
    first = draw(batch, tokens, 20)
    assert np.array_equal(draw(batch, tokens, 20), first)
    assert not np.array_equal(draw(replace(batch, seed=1), tokens, 20), first)
    assert not np.array_equal(draw(replace(batch, version=1), tokens, 20), first)
    fewer = draw(batch, np.setdiff1d(tokens, first[:1]), 20)
    assert set(first[1:]) <= set(fewer), "a candidate less only makes room for the next"


def test_ties_are_drawn_over_the_whole_batch() -> None:
    """Equal covariances everywhere: 300 versions hit both rollouts, and early and late tokens, about alike."""
    batch = make_batch(ties=True, lengths=(50, 50))
    loss = KlCovLoss(KlCovOptions(kl_cov_share=0.02))
    hits = Counter(
        (token[1], token[2] // 25)
        for version in range(300)
        for token in chosen(batch, loss.prepare(replace(batch, version=version))["held"])
    )
    assert sum(hits.values()) == 600
    assert all(100 < count < 200 for count in hits.values())
    assert len(hits) == 4


@pytest.mark.parametrize(("share", "tokens", "count"), [(0.5, 0, 0), (1e-9, 5, 1), (0.5, 5, 2), (0.999, 1, 1), (1.0, 7, 7)])
def test_budget(share: float, tokens: int, count: int) -> None:
    assert budget(share, tokens) == count


def test_nothing_that_trains_chooses_nothing() -> None:
    batch = with_old([make_rollout([1], [2, 2]), make_rollout([1], [])], [1.0, -1.0], in_loss=[False, True])
    assert KlCovLoss().prepare(batch)["held"].tolist() == [0.0, 0.0]
    assert ClipCovLoss().prepare(batch)["taken_out"].tolist() == [0.0, 0.0]


def test_equal_advantages_have_no_covariance_and_a_band_above_zero_is_empty() -> None:
    batch = with_old([make_rollout([1], [2] * 7, logprobs=[-0.1 * i for i in range(7)]) for _ in range(3)], [0.7, 0.7, 0.7])
    assert covariances(batch)[1].tolist() == [0.0] * 21
    assert not ClipCovLoss().prepare(batch)["taken_out"].any()


def test_kl_cov_fills_up_with_a_draw_among_the_equal() -> None:
    """Three tokens to hold: the one highest, and two of the six that tie behind it."""
    logprobs = [[0.0, -1.0, -1.0, -1.0], [-1.0, -1.0, -1.0, -4.0]]
    rollouts = [make_rollout([1], [2] * 4, logprobs=row, index=index) for index, row in enumerate(logprobs)]
    rollouts.append(make_rollout([1], [2] * 8, logprobs=[-1.0] * 8, index=2))
    batch = with_old(rollouts, [1.0, 1.0, -1.0])
    assert sorted(covariances(batch)[1])[-7:-1] == [covariances(batch)[1][1]] * 6
    held = chosen(batch, KlCovLoss(KlCovOptions(kl_cov_share=3 / 16)).prepare(batch)["held"])
    assert ("p0", 0, 0) in held
    assert len(held) == 3


def test_a_single_token_has_no_covariance() -> None:
    assert covariances(with_old([make_rollout([1], [2])], [1.5]))[1].tolist() == [0.0]


def test_marks() -> None:
    batch = make_batch(lengths=(3, 2))
    assert marks(batch, np.array([4, 1])).tolist() == [0.0, 1.0, 0.0, 0.0, 1.0]
    assert marks(batch, np.array([], np.int64)).dtype == np.float32
