from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import pytest

from rlcore.api import (
    AdvantageEstimator,
    FinishReason,
    Group,
    Loss,
    Outcome,
    RewardBatch,
    RewardDetail,
    Rollout,
    RunError,
    Score,
    Segment,
    TrainBatch,
)
from rlcore.contracts.types import RolloutKind
from rlcore.learning import BatchSettings, SoftOverlong, assemble_batch, assemble_rewards, prepare_loss, run_estimator, split
from rlcore.learning.advantages import GroupMean
from rlcore.learning.aggregation import TokenLevel

SETTINGS = BatchSettings(max_new_tokens=8)


def rollout(
    index: int,
    length: int,
    *,
    finish: FinishReason = FinishReason.STOP,
    kind: RolloutKind = RolloutKind.SAMPLED,
    forced: int = 0,
    temperature: float = 1.0,
) -> Rollout:
    total = length + forced
    segment = Segment(
        context_ids=[1, 2],
        token_ids=np.arange(total),
        logprobs=-(index + 1) - np.arange(total) / 100,
        versions=np.zeros(total),
        policy_mask=np.arange(total) >= forced,
    )
    return Rollout(prompt_id="p", index=index, segments=(segment,), text="", finish=finish, kind=kind, temperature=temperature)


def group(rollouts: Sequence[Rollout], scores: Sequence[Score | float]) -> Group:
    verdicts = tuple(score if isinstance(score, Score) else Score(value=score) for score in scores)
    return Group(prompt_id="p", episode=0, prompt_index=0, rollouts=tuple(rollouts), scores=verdicts)


def test_rewards_of_ragged_groups() -> None:
    groups = [group([rollout(0, 2), rollout(1, 3)], [1.0, 0.0]), group([rollout(0, 1, forced=4)], [5.0])]
    batch = assemble_rewards(groups, SETTINGS)
    assert batch.rewards.tolist() == [1.0, 0.0, 5.0]
    assert batch.group.tolist() == [0, 0, 1]
    assert batch.lengths.tolist() == [2, 3, 1]
    assert batch.offsets.tolist() == [0, 2, 5, 6]
    assert batch.rewards.dtype == np.float64
    assert not batch.rewards.flags.writeable


def test_a_turn_is_a_message_of_the_policy_and_not_a_run_of_the_mask() -> None:
    """Empty answers, and answers without a token between them, are turns if the conversation reports their lengths."""
    talk = replace(rollout(0, 5), turn_lengths=(2, 0, 3))
    spread = replace(rollout(1, 2), segments=(*rollout(1, 2, forced=1).segments, *rollout(2, 3).segments), turn_lengths=(1, 1, 3))
    batch = assemble_rewards([group([talk, spread, rollout(2, 4)], [1.0, 2.0, 3.0])], SETTINGS, needs={RewardDetail.TURNS})
    assert batch.turn_lengths is not None
    assert batch.turn_offsets is not None
    assert (batch.turn_lengths.tolist(), batch.turn_offsets.tolist()) == ([2, 0, 3, 1, 1, 3, 4], [0, 3, 6, 7])


@pytest.mark.parametrize("lengths", [(2, 2), (6,), (7, -2)])
def test_lengths_of_turns_must_add_up_to_the_sampled_tokens(lengths: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"rollout 0 of prompt p has turn_lengths .* add up to the 5 tokens that the policy sampled"):
        replace(rollout(0, 5), turn_lengths=lengths)
    assert replace(rollout(0, 5), turn_lengths=(5,)).without_tokens().turn_lengths == ()


def test_an_estimator_gets_what_it_needs_and_nothing_else() -> None:
    turns = replace(rollout(1, 2), segments=(*rollout(1, 2, forced=1).segments, *rollout(2, 3).segments))
    scores = [Score(value=3.0, parts={"a": 1.0, "a/x": 7.0}, token_rewards=(0.5, -0.5)), Score(value=1.0, parts={"a": 1.0})]
    groups = [group([rollout(0, 2), turns], scores), replace(group([rollout(0, 1)], [5.0]), prompt_id="q")]
    plain = assemble_rewards(groups, SETTINGS)
    names = ("parts", "token_rewards", "prompt_ids", "turn_lengths", "turn_offsets", "rollout_logprobs")
    assert [getattr(plain, name) for name in names] == [None] * 6
    batch = assemble_rewards(groups, SETTINGS, needs=frozenset(RewardDetail))
    assert batch.prompt_ids == ("p", "q")
    assert batch.parts is not None
    np.testing.assert_array_equal(batch.parts["a"], [1.0, 1.0, np.nan])
    np.testing.assert_array_equal(batch.parts["a/x"], [7.0, np.nan, np.nan])
    arrays = {name: np.asarray(getattr(batch, name)) for name in names if name not in ("parts", "prompt_ids")}
    assert arrays["token_rewards"].tolist() == [0.5, -0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    assert arrays["turn_lengths"].tolist() == [2, 2, 3, 1]
    assert arrays["turn_offsets"].tolist() == [0, 1, 3, 4]
    assert arrays["rollout_logprobs"].tolist() == pytest.approx([-1.0, -1.01, -2.01, -2.02, -3.0, -3.01, -3.02, -1.0])
    assert arrays["rollout_logprobs"].dtype == arrays["token_rewards"].dtype == np.float64
    for array in (*arrays.values(), *batch.parts.values()):
        assert not array.flags.writeable
    only = assemble_rewards(groups, SETTINGS, needs={RewardDetail.TURNS})
    assert only.turn_offsets is not None
    assert only.parts is only.token_rewards is only.prompt_ids is only.rollout_logprobs is None


def test_a_turn_is_an_unbroken_run_of_policy_tokens_and_no_mask_between_turns_counts() -> None:
    mask = [False, True, True, False, True, False, False, True, True, True]
    talk = Segment(context_ids=[1], token_ids=range(10), logprobs=[-0.5] * 10, versions=[0] * 10, policy_mask=mask)
    silent = Segment(context_ids=[1], token_ids=[3], logprobs=[0.0], versions=[0], policy_mask=[False])
    rollouts = [replace(rollout(n, 1), segments=segments) for n, segments in enumerate([(talk,), (silent,), (talk, talk)])]
    batch = assemble_rewards([group(rollouts, [1.0, 0.0, 1.0])], SETTINGS, needs={RewardDetail.TURNS})
    assert batch.turn_lengths is not None
    assert batch.turn_offsets is not None
    assert batch.turn_lengths.tolist() == [2, 1, 3, 2, 1, 3, 2, 1, 3]
    assert batch.turn_offsets.tolist() == [0, 3, 3, 9]
    assert batch.lengths.tolist() == [6, 0, 12]


def test_each_reward_of_the_run_is_there_without_its_weight() -> None:
    scores = [Score(value=1.0, parts={"b": 1.0}, raw={"b": 4.0}), Score(value=0.0, raw={"a": 2.0, "b": 0.0}), Score(value=0.0)]
    settings = replace(SETTINGS, rewards=("b", "a", "unused"))
    found = assemble_rewards([group([rollout(index, 2) for index in range(3)], scores)], settings, needs={RewardDetail.RAW_PARTS}).raw_parts
    assert found is not None
    assert list(found) == ["b", "a", "unused"]
    np.testing.assert_array_equal(list(found.values()), [[4.0, 0.0, np.nan], [np.nan, 2.0, np.nan], [np.nan] * 3])
    assert assemble_rewards([group([rollout(0, 2)], scores[:1])], settings).raw_parts is None


def test_token_rewards_are_one_a_token() -> None:
    groups = [group([rollout(0, 3)], [Score(value=1.0, token_rewards=(1.0,))])]
    with pytest.raises(RunError, match="has 1 token rewards, and the policy sampled 3 tokens"):
        assemble_rewards(groups, SETTINGS, needs={RewardDetail.TOKEN_REWARDS})


def test_an_estimator_that_reads_what_it_did_not_declare_is_told_how() -> None:
    class Reads(AdvantageEstimator):
        def estimate(self, batch: RewardBatch) -> np.ndarray:
            return batch.parts["a"]  # type: ignore[index]

    with pytest.raises(
        RunError,
        match=r"estimator 'own' failed: .* an estimator declares the fields that it reads in `needs` \(parts, raw_parts, token_rewards",
    ):
        run_estimator("own", Reads(), assemble_rewards([group([rollout(0, 2)], [1.0])], SETTINGS))


def test_the_train_batch_is_flat_over_policy_tokens() -> None:
    groups = [group([rollout(0, 2, temperature=0.7), rollout(1, 1, forced=1, temperature=0.9)], [1.0, 0.0])]
    batch = assemble_batch(groups, np.array([2.0, -2.0]), SETTINGS, version=4)
    assert batch.advantages.tolist() == [2.0, 2.0, -2.0]
    assert batch.rollout_logprobs == pytest.approx([-1.0, -1.01, -2.01])
    assert batch.weights == pytest.approx([0.25, 0.25, 0.5])
    assert (batch.version, len(batch)) == (4, 2)
    assert (batch.temperatures.tolist(), batch.temperatures.dtype) == ([0.7, 0.9], np.float64)
    assert batch.take(np.array([1])).temperatures.tolist() == [0.9]
    assert batch.old_logprobs is None


def test_tokens_beyond_the_staleness_do_not_train_and_the_others_do_as_before() -> None:
    parts = [rollout(0, 4), rollout(1, 2), rollout(2, 3, forced=1)]
    versions = ([3, 4, 5, 6], [2, 3], [9, 5, 4, 6])
    aged = [
        replace(one, segments=(replace(one.segments[0], versions=np.array(of, np.int32)),)) for one, of in zip(parts, versions, strict=True)
    ]
    groups = [group(aged[:2], [1.0, 0.0]), group(aged[2:], [1.0])]
    plain = assemble_batch(groups, None, SETTINGS, version=6)
    bounded = replace(SETTINGS, max_staleness=1)
    batch = assemble_batch(groups, None, bounded, version=6)
    trains = np.array([False, False, True, True, False, False, True, False, True])
    assert batch.weights.tolist() == np.where(trains, plain.weights, 0.0).tolist()
    assert (batch.in_loss.tolist(), batch.normalisers) == (plain.in_loss.tolist(), plain.normalisers)
    assert [int((part.weights != 0).sum()) for part in split(batch, bounded, updates=2)] in ([2, 2], [2, 2])
    assert [(part.weights == 0).any() for part in split(batch, bounded, updates=2)] == [True, True]


def test_rollouts_follow_their_index_whatever_the_order_of_arrival() -> None:
    batch = assemble_batch([group([rollout(2, 1), rollout(0, 2), rollout(1, 3)], [2.0, 0.0, 1.0])], None, SETTINGS)
    assert [item.index for item in batch.rollouts] == [0, 1, 2]
    assert assemble_rewards([group([rollout(1, 1), rollout(0, 2)], [1.0, 0.0])], SETTINGS).rewards.tolist() == [0.0, 1.0]


MASKS = {
    "failed reward": (rollout(1, 3), Score.failed(Outcome.TIMEOUT, "late"), False, False),
    "outside the loss": (rollout(1, 3), Score(value=1.0, in_loss=False), True, False),
    "aborted": (rollout(1, 3, finish=FinishReason.ABORTED), Score(value=1.0), False, False),
    "empty": (rollout(1, 0), Score(value=1.0), True, False),
    "truncated": (rollout(1, 3, finish=FinishReason.LENGTH), Score(value=1.0), True, True),
    "plain": (rollout(1, 3), Score(value=1.0), True, True),
}


@pytest.mark.parametrize("case", MASKS)
def test_masks(case: str) -> None:
    item, score, in_statistics, in_loss = MASKS[case]
    groups = [group([rollout(0, 2), item, rollout(2, 2)], [0.0, score, 3.0])]
    rewards = assemble_rewards(groups, SETTINGS)
    assert rewards.in_statistics.tolist() == [True, in_statistics, True]
    batch = assemble_batch(groups, run_estimator("mean", GroupMean(), rewards), SETTINGS)
    assert batch.in_loss.tolist() == [True, in_loss, True]
    assert batch.normalisers.rollouts == 2 + in_loss
    span = slice(batch.offsets[1], batch.offsets[2])
    assert batch.weights[span].any() == in_loss
    if not in_statistics:
        assert not batch.advantages[span].any()
        assert batch.advantages[0] == -1.5


def test_truncated_and_filtered_keeps_its_statistics() -> None:
    settings = replace(SETTINGS, filter_truncated=True)
    groups = [group([rollout(0, 2), rollout(1, 8, finish=FinishReason.LENGTH)], [1.0, 0.0])]
    assert assemble_rewards(groups, settings).in_statistics.all()
    batch = assemble_batch(groups, None, settings)
    assert batch.in_loss.tolist() == [True, False]
    assert batch.normalisers.tokens == 2


def test_a_masked_group_stays_in_the_statistics_and_leaves_the_loss() -> None:
    groups = [group([rollout(0, 2)], [1.0]), group([rollout(0, 2)], [0.0])]
    assert assemble_rewards(groups, SETTINGS, masked={1}).in_statistics.tolist() == [True, True]
    batch = assemble_batch(groups, None, SETTINGS, masked={1})
    assert batch.in_loss.tolist() == [True, False]
    assert batch.normalisers.tokens == 2


def test_the_greedy_rollout_lends_its_reward_and_does_not_train() -> None:
    with_greedy = group([rollout(0, 2), rollout(1, 2), rollout(2, 5, kind=RolloutKind.GREEDY)], [1.0, 0.0, 7.0])
    batch = assemble_rewards([with_greedy, group([rollout(0, 2)], [0.0])], SETTINGS, with_greedy=True)
    assert batch.rewards.tolist() == [1.0, 0.0, 0.0]
    assert batch.greedy is not None
    assert batch.greedy[0] == 7.0
    assert np.isnan(batch.greedy[1])
    assert len(assemble_batch([with_greedy], None, SETTINGS)) == 2


def test_soft_overlong_is_added_before_the_estimator() -> None:
    settings = replace(SETTINGS, overlong=SoftOverlong(max_new_tokens=8, cache_length=4, correct_score=2.0))
    groups = [group([rollout(0, 3), rollout(1, 6), rollout(2, 8, finish=FinishReason.LENGTH)], [2.0, 2.0, 0.0])]
    assert assemble_rewards(groups, settings).rewards.tolist() == [2.0, 1.0, -2.0]


def test_a_score_that_is_not_finite_is_refused() -> None:
    with pytest.raises(RunError, match=r"rollout 1 of prompt 'p' is nan"):
        assemble_rewards([group([rollout(0, 2), rollout(1, 2)], [0.0, float("nan")])], SETTINGS)


@pytest.mark.parametrize("temperature", [0.0, -1.0, float("nan"), float("inf")])
def test_a_temperature_that_nothing_is_sampled_at_is_refused(temperature: float) -> None:
    odd = group([rollout(0, 2), rollout(1, 2, temperature=temperature)], [0.0, 1.0])
    with pytest.raises(RunError, match=rf"rollout 1 of prompt 'p' is marked as sampled at temperature {temperature}, .* above 0"):
        assemble_batch([odd], None, SETTINGS)


def test_an_aborted_greedy_rollout_is_no_baseline_whatever_its_score() -> None:
    for value in (7.0, float("nan")):
        aborted = group([rollout(0, 2), rollout(1, 2, kind=RolloutKind.GREEDY, finish=FinishReason.ABORTED)], [1.0, value])
        greedy = assemble_rewards([aborted], SETTINGS, with_greedy=True).greedy
        assert greedy is not None
        assert np.isnan(greedy[0])


def test_the_score_of_an_aborted_rollout_is_not_looked_at() -> None:
    batch = assemble_rewards([group([rollout(0, 2), rollout(1, 2, finish=FinishReason.ABORTED)], [1.0, float("nan")])], SETTINGS)
    assert batch.in_statistics.tolist() == [True, False]
    assert batch.rewards.tolist() == [1.0, 0.0]


def test_a_greedy_rollout_is_at_temperature_zero_and_in_the_way_of_nothing() -> None:
    with_greedy = group([rollout(0, 2), rollout(1, 2, kind=RolloutKind.GREEDY, temperature=0.0)], [0.0, 1.0])
    assert assemble_batch([with_greedy], None, SETTINGS).temperatures.tolist() == [1.0]


class Returns(AdvantageEstimator):
    def __init__(self, values: np.ndarray, per: Literal["rollout", "token"] = "rollout") -> None:
        self.values = values
        self.per = per

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return self.values


def two_rollouts() -> RewardBatch:
    return assemble_rewards([group([rollout(0, 2), rollout(1, 3)], [1.0, Score.failed(Outcome.ERROR, "x")])], SETTINGS)


def test_an_estimator_may_answer_per_token() -> None:
    values = run_estimator("mine", Returns(np.arange(1.0, 6.0), per="token"), two_rollouts())
    assert values.tolist() == [1.0, 2.0, 0.0, 0.0, 0.0]


def test_with_as_many_tokens_as_rollouts_an_advantage_belongs_to_what_the_estimator_declares() -> None:
    batch = assemble_rewards([group([rollout(0, 1), rollout(1, 3), rollout(2, 0), rollout(3, 0)], [1.0, 0.0, 0.0, 0.0])], SETTINGS)
    values = np.array([1.0, 2.0, 3.0, 4.0])
    assert len(batch.rewards) == batch.offsets[-1] == len(values)
    assert run_estimator("mine", Returns(values, per="token"), batch).tolist() == [1.0, 2.0, 3.0, 4.0]
    assert run_estimator("mine", Returns(values, per="rollout"), batch).tolist() == [1.0, 2.0, 2.0, 2.0]


@pytest.mark.parametrize(("per", "length"), [("rollout", 3), ("rollout", 5), ("token", 3), ("token", 2), ("tokens", 5)])
def test_an_estimator_of_another_shape_than_it_declares_is_named(per: Any, length: int) -> None:
    words = (
        rf"estimator 'mine' declares per = \"{per}\" and returned shape \[{length}\]; it must declare per = \"rollout\" and return one "
        r"advantage per rollout \[2\], or per = \"token\" and one per token \[5\]"
    )
    with pytest.raises(RunError, match=words):
        run_estimator("mine", Returns(np.zeros(length), per=per), two_rollouts())


@pytest.mark.parametrize("value", [1e39, -1e300])
def test_what_a_cast_to_float32_would_make_infinite_is_not_finite(value: float) -> None:
    with pytest.raises(RunError, match=rf"estimator 'mine' returned {re.escape(str(value))} for rollout 0 .* must be finite in float32"):
        run_estimator("mine", Returns(np.array([value, 0.0])), two_rollouts())
    with pytest.raises(RunError, match=rf"rollout 1 of prompt 'p' is {re.escape(str(value))}; it must be finite in float32"):
        assemble_rewards([group([rollout(0, 2), rollout(1, 2)], [0.0, value])], SETTINGS)
    batch = assemble_batch([group([rollout(0, 2)], [0.0])], None, SETTINGS)
    with pytest.raises(RunError, match="loss 'mine': prepare returned 'marks' with values that are not finite in float32"):
        prepare_loss("mine", Prepares(marks=np.array([0.0, value])), batch)


def test_the_largest_number_of_float32_is_finite() -> None:
    largest = float(np.finfo(np.float32).max)
    assert run_estimator("mine", Returns(np.array([largest, 0.0])), two_rollouts())[0] == largest


def test_an_estimator_that_is_not_finite_is_named() -> None:
    with pytest.raises(RunError, match=r"estimator 'mine' returned nan for rollout 0"):
        run_estimator("mine", Returns(np.array([np.nan, 0.0])), two_rollouts())
    assert not run_estimator("mine", Returns(np.array([0.0, np.nan])), two_rollouts()).any()


class Prepares(Loss):
    def __init__(self, **extras: np.ndarray) -> None:
        self.extras = extras

    def prepare(self, batch: TrainBatch) -> Mapping[str, np.ndarray]:
        return self.extras

    def per_token(self, logprobs: object, batch: object) -> object:  # type: ignore[override]
        raise NotImplementedError


def small_batch() -> TrainBatch:
    return assemble_batch([group([rollout(0, 2), rollout(1, 1)], [1.0, 0.0])], None, SETTINGS)


def test_what_a_loss_prepared_travels_with_the_batch() -> None:
    batch = prepare_loss("mine", Prepares(keep=np.array([1.0, 0.0, 1.0])), small_batch())
    assert batch.extras["keep"].tolist() == [1.0, 0.0, 1.0]
    assert batch.take(np.array([1])).extras["keep"].tolist() == [1.0]


@pytest.mark.parametrize(("values", "words"), [(np.zeros(2), "shape"), (np.array([0, np.inf, 0]), "not finite")])
def test_what_a_loss_prepared_is_checked(values: np.ndarray, words: str) -> None:
    with pytest.raises(RunError, match=rf"loss 'mine': prepare returned 'keep'.*{words}"):
        prepare_loss("mine", Prepares(keep=values), small_batch())


def many_groups(n: int = 7) -> TrainBatch:
    groups = [group([rollout(0, 1 + number % 3), rollout(1, 2)], [1.0, 0.0]) for number in range(n)]
    return assemble_batch(groups, None, SETTINGS, masked={2}, version=3)


def test_split_deals_whole_groups_once() -> None:
    batch = many_groups()
    steps = split(batch, SETTINGS, updates=3)
    seen = [set(step.group.tolist()) for step in steps]
    assert sorted(number for groups in seen for number in groups) == list(range(7))
    assert sum(len(step) for step in steps) == len(batch)
    assert all((np.diff(step.group) >= 0).all() for step in steps)


def test_split_normalises_each_step_by_what_it_holds() -> None:
    settings = replace(SETTINGS, variation=TokenLevel())
    for step in split(many_groups(), settings, updates=3):
        assert step.normalisers.tokens == int(step.lengths[step.in_loss].sum())
        assert float(step.weights.sum()) == pytest.approx(1.0)


def test_split_is_a_function_of_seed_version_and_epoch() -> None:
    batch = many_groups()

    def dealt(**key: int) -> list[list[int]]:
        keyed = replace(batch, version=key.get("version", 3), seed=key.get("seed", 0))
        steps = split(keyed, SETTINGS, updates=2, epoch=key.get("epoch", 0))
        return [step.group.tolist() for step in steps]

    assert dealt() == dealt()
    for key in ("seed", "epoch", "version"):
        assert len({str(dealt(**{key: value})) for value in range(6)}) > 3, key


def test_one_step_is_the_batch_itself() -> None:
    batch = many_groups()
    assert split(batch, SETTINGS, updates=1) == [batch]
    assert len(split(many_groups(3), SETTINGS, updates=8)) == 3
