"""Conformance suite for advantage estimators."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

import numpy as np

from rlcore.contracts.batches import RewardBatch, token_index
from rlcore.contracts.interfaces import AdvantageEstimator, RewardDetail
from rlcore.testing.records import make_reward_batch

__all__ = ["AdvantageSuite"]


class AdvantageSuite(ABC):
    """The rules of an advantage estimator: every rank runs it on the same global batch, in float64.

    A subclass defines how to make the estimator, and sets a flag to False only if the estimator's paper says so.
    """

    equal_gives_zero: ClassVar[bool] = True
    """Rewards that are all equal in every group give exactly 0."""
    shift_invariant: ClassVar[bool] = True
    """A constant added to all rewards of a group changes nothing."""
    tolerance: ClassVar[float] = 1e-9

    @abstractmethod
    def make(self) -> AdvantageEstimator:
        """Return a fresh estimator."""

    def batch(self) -> RewardBatch:
        """Return three ragged groups, one rollout out of statistics, lengths from 0 to 7, with KL and greedy rewards if declared."""
        rewards = [1.0, 0.0, 0.25, 1.0, 3.0, -2.0, 0.5, 0.5, 10.0]
        lengths = [3, 1, 7, 2, 4, 5, 3, 1, 2]
        masked = 5
        batch = make_reward_batch(
            rewards, [0, 0, 0, 0, 1, 1, 1, 2, 2], in_statistics=[row != masked for row in range(len(rewards))], lengths=lengths
        )
        batch, tokens = self.declared(batch), sum(lengths)
        varied: dict[str, Any] = {"token_rewards": np.sin(np.arange(tokens)), "rollout_logprobs": -np.arange(1.0, tokens + 1.0)}
        return replace(batch, **{name: values for name, values in varied.items() if getattr(batch, name) is not None})

    def declared(self, batch: RewardBatch) -> RewardBatch:
        """Return the batch with the fields that the estimator declares."""
        estimator = self.make()
        if estimator.accepts_kl:
            tokens = int(batch.lengths.sum())
            batch = replace(batch, kl=np.linspace(0.0, 0.3, tokens), kl_coeff=0.1)
        if estimator.needs_greedy:
            batch = replace(batch, greedy=np.linspace(-0.5, 0.5, int(batch.group.max()) + 1))
        made = make_reward_batch(batch.rewards.tolist(), batch.group.tolist(), lengths=batch.lengths.tolist(), needs=estimator.needs)
        names = [need.value for need in estimator.needs] + ["turn_offsets"] * (RewardDetail.TURNS in estimator.needs)
        return replace(batch, **{name: getattr(made, name) for name in names})

    def per_token(self, batch: RewardBatch) -> np.ndarray:
        """Return float64[N]: the estimate, repeated for each token if it is one a rollout."""
        estimator = self.make()
        values = estimator.estimate(batch)
        return np.repeat(values, batch.lengths) if estimator.per == "rollout" else values

    def test_shape_and_type(self) -> None:
        """The estimate is float64[R] if ``per`` is "rollout", and float64[N] if it is "token"."""
        batch, estimator = self.batch(), self.make()
        values = estimator.estimate(batch)
        assert isinstance(values, np.ndarray), f"estimate gave a {type(values).__name__}"
        declared = {"rollout": len(batch.rewards), "token": int(batch.lengths.sum())}
        assert estimator.per in declared, f"per is {estimator.per!r}; it is 'rollout' or 'token'"
        due = declared[estimator.per]
        assert values.shape == (due,), f'shape {values.shape}; per = "{estimator.per}" says [{due}], one advantage per {estimator.per}'
        assert values.dtype == np.float64, f"dtype {values.dtype}; advantages are float64 until the batch is assembled"

    def test_finite_at_the_edges(self) -> None:
        """Estimates are finite for a group of one, equal rewards, a group without statistics, and huge or tiny rewards."""
        edges = {
            "a group of one": make_reward_batch([1.0, 0.0, 1.0], [0, 1, 1]),
            "one rollout": make_reward_batch([1.0], [0]),
            "equal rewards": make_reward_batch([1.0] * 4, [0] * 4),
            "no statistics at all": make_reward_batch([1.0, 2.0], [0, 0], in_statistics=[False, False]),
            "one in statistics": make_reward_batch([1.0, 2.0], [0, 0], in_statistics=[True, False]),
            "huge rewards": make_reward_batch([1e9, -1e9, 0.0], [0, 0, 0]),
            "tiny differences": make_reward_batch([1.0, 1.0 + 1e-12, 1.0], [0, 0, 0]),
            "an empty response": make_reward_batch([1.0, 0.0], [0, 0], lengths=[0, 2]),
        }
        for name, batch in edges.items():
            values = self.make().estimate(self.declared(batch))
            assert np.isfinite(values).all(), f"{name}: {values}"

    def test_finite_without_a_greedy_reward(self) -> None:
        """Estimates are finite if the greedy rollout of a group was not judged, so that its reward is NaN."""
        batch = self.batch()
        if batch.greedy is None:
            return
        for missing in ([0], [1], [2], [0, 1, 2]):
            greedy = batch.greedy.copy()
            greedy[missing] = np.nan
            values = self.per_token(replace(batch, greedy=greedy))
            bad = sorted(set(np.repeat(batch.group, batch.lengths)[~np.isfinite(values)].tolist()))
            assert not bad, (
                f"groups {missing} came without a greedy reward (batch.greedy is NaN there), and the advantages of groups {bad} are not "
                "finite: give such rollouts 0"
            )

    def seen(self) -> AdvantageEstimator:
        """Return an estimator that has seen three batches; only one with a state may remember them."""
        estimator = self.make()
        for batch in (self.batch(), self.declared(make_reward_batch([5.0, 1.0], [0, 0])), self.batch()):
            estimator.estimate(batch)
        return estimator

    def test_deterministic(self) -> None:
        """Two estimates of one batch have the same bits. Earlier batches change nothing, unless ``state`` returns something to save."""
        first = self.make().estimate(self.batch())
        assert np.array_equal(first, self.make().estimate(self.batch())), "two estimates of one batch differ"
        estimator = self.seen()
        later = estimator.estimate(self.batch())
        assert np.array_equal(later, self.seen().estimate(self.batch())), "two estimators that saw the same batches differ"
        if not estimator.state():
            assert np.array_equal(later, first), "an estimate depends on the batches seen before, and state() gives nothing to save"

    def test_state_is_saved_and_restored(self) -> None:
        """``state`` returns numbers and texts, and an estimator that restores them continues with the same bits. The estimator that was
        saved is not changed."""
        estimator = self.seen()
        state = {name: np.array(value) for name, value in estimator.state().items()}
        if not state:
            return
        strange = [name for name, value in state.items() if value.dtype.kind not in "biufU"]
        assert not strange, f"{strange} of the state cannot be saved: numbers, texts and arrays of them can"
        other = self.make()
        other.restore({name: value.copy() for name, value in state.items()})
        again = other.state()
        for name, value in state.items():
            assert np.array_equal(np.asarray(again[name]), value), f"{name} of the restored state is another"
        assert np.array_equal(other.estimate(self.batch()), estimator.estimate(self.batch())), "a restored estimator continues differently"
        fresh = self.make().estimate(self.batch())
        assert np.array_equal(fresh, self.make().estimate(self.batch())), "estimators share what they keep"

    def test_needs_are_known(self) -> None:
        """``needs`` is a frozenset of ``RewardDetail``."""
        needs = self.make().needs
        assert isinstance(needs, frozenset), f"needs is a {type(needs).__name__}"
        assert needs <= set(RewardDetail), f"needs holds {sorted(set(needs) - set(RewardDetail))}, which is not a RewardDetail"

    def test_inputs_are_not_changed(self) -> None:
        """The batch is unchanged afterwards: it is shared."""
        batch, same = self.batch(), self.batch()
        self.make().estimate(batch)
        for item in fields(batch):
            value = getattr(batch, item.name)
            if isinstance(value, np.ndarray):
                assert np.array_equal(value, getattr(same, item.name)), f"estimate changed {item.name}"

    def test_follows_a_permutation(self) -> None:
        """Each rollout keeps its advantage if the rollouts are permuted, so that groups are interleaved."""
        batch = self.batch()
        order = np.random.default_rng(0).permutation(len(batch.rewards))
        tokens = token_index(batch.offsets, order)
        lengths = batch.lengths[order]
        moved = replace(
            batch,
            rewards=batch.rewards[order],
            group=batch.group[order],
            in_statistics=batch.in_statistics[order],
            lengths=lengths,
            offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
            kl=None if batch.kl is None else batch.kl[tokens],
            **_moved(batch, order, tokens),
        )
        self._assert_close(self.per_token(moved), self.per_token(batch)[tokens], "a permutation of the rollouts changed advantages")

    def test_groups_may_be_renumbered(self) -> None:
        """Advantages are unchanged if the groups are renumbered."""
        batch = self.batch()
        names = int(batch.group.max()) - batch.group
        greedy = None if batch.greedy is None else batch.greedy[::-1].copy()
        prompts = None if batch.prompt_ids is None else batch.prompt_ids[::-1]
        renamed = replace(batch, group=names, greedy=greedy, prompt_ids=prompts)
        self._assert_close(self.per_token(renamed), self.per_token(batch), "renumbering the groups changed advantages")

    def test_masked_rollouts_have_no_influence(self) -> None:
        """A rollout that is not in the statistics changes no advantage of another rollout."""
        batch = self.batch()
        rewards = np.where(batch.in_statistics, batch.rewards, 1e6)
        counted = np.repeat(batch.in_statistics, batch.lengths)
        changed = self.per_token(replace(batch, rewards=rewards, **_parts_of(batch, rewards)))
        self._assert_close(changed[counted], self.per_token(batch)[counted], "the reward of a masked rollout moved the others")

    def test_equal_rewards_give_zero(self) -> None:
        """Equal rewards give advantages of exactly 0, even if their mean is rounded (0.1 three times). Not checked with ``equal_gives_zero
        = False``."""
        if not self.equal_gives_zero:
            return
        for value, size in ((0.1, 3), (0.7, 6), (1.1, 7), (-0.3, 11), (1e6 + 0.1, 3), (2.5, 1)):
            values = self.make().estimate(self._still(make_reward_batch([value] * size, [0] * size)))
            assert not values.any(), f"{size} rewards of {value} give {values}, not exactly 0"

    def _still(self, batch: RewardBatch) -> RewardBatch:
        """Return the batch with the declared fields, without KL, and with greedy rewards equal to the sampled ones."""
        batch = self.declared(batch)
        return replace(batch, kl_coeff=0.0, greedy=None if batch.greedy is None else batch.rewards[:1])

    def test_shift_of_a_group_changes_nothing(self) -> None:
        """Advantages are unchanged if a constant is added to all rewards of a group. Not checked with ``shift_invariant = False``."""
        if not self.shift_invariant:
            return
        batch = self.batch()
        shift = np.array([5.0, -3.0, 0.5])
        greedy = None if batch.greedy is None else batch.greedy + shift
        rewards = batch.rewards + shift[batch.group]
        moved = replace(batch, rewards=rewards, **_parts_of(batch, rewards), greedy=greedy)
        assert np.allclose(self.per_token(moved), self.per_token(batch), atol=1e-6), (
            "a constant added to a group's rewards changed advantages"
        )

    def test_better_reward_is_not_worse(self) -> None:
        """In a group of equal lengths, a higher reward has a higher advantage."""
        batch = self._still(make_reward_batch([0.0, 0.5, 1.0, 0.25], [0, 0, 0, 0]))
        values = self.per_token(batch).reshape(4, 3)
        order = np.argsort(batch.rewards)
        assert (np.diff(values[order], axis=0) > 0).all(), f"rewards {batch.rewards} have advantages {values[:, 0]}"

    def test_kl_lowers_the_advantage(self) -> None:
        """If the estimator accepts KL, more KL at a token lowers the advantage of the token."""
        if not self.make().accepts_kl:
            return
        batch = self.batch()
        assert batch.kl is not None, "the suite gives KL where it is accepted"
        further = replace(batch, kl=batch.kl + np.eye(1, len(batch.kl), 4)[0])
        assert self.per_token(further)[4] < self.per_token(batch)[4], "more KL at a token did not lower its advantage"

    def _assert_close(self, got: np.ndarray, expected: np.ndarray, message: str) -> None:
        assert np.allclose(got, expected, rtol=self.tolerance, atol=self.tolerance), f"{message}: {got} against {expected}"


def _parts_of(batch: RewardBatch, rewards: np.ndarray) -> dict[str, Any]:
    given = {name: getattr(batch, name) for name in ("parts", "raw_parts")}
    return {name: dict.fromkeys(parts, rewards) for name, parts in given.items() if parts is not None}


def _moved(batch: RewardBatch, order: Sequence[int] | np.ndarray, tokens: np.ndarray) -> dict[str, Any]:
    """Return the fields that an estimator declared, for the rollouts in another order."""
    found: dict[str, Any] = {}
    for parts, given in (("parts", batch.parts), ("raw_parts", batch.raw_parts)):
        if given is not None:
            found[parts] = {name: values[order] for name, values in given.items()}
    for name in ("token_rewards", "rollout_logprobs"):
        if (values := getattr(batch, name)) is not None:
            found[name] = values[tokens]
    if batch.turn_lengths is not None and batch.turn_offsets is not None:
        turns = np.diff(batch.turn_offsets)[order]
        found["turn_lengths"] = batch.turn_lengths[token_index(batch.turn_offsets, np.asarray(order))]
        found["turn_offsets"] = np.concatenate([[0], np.cumsum(turns)])
    return found
