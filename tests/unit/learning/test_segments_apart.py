"""A batch by segment: each policy token once, the same arrays per token, and forwards that hold one segment of a long rollout."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.api import Correction, FinishReason, Group, Loss, Rollout, Score, Segment, TrainBatch
from rlcore.learning import BatchSettings, ClippedSurrogate, PolicyObjective, assemble_batch, collate, plan_micro_batches
from rlcore.learning.correction import SequenceMasked, Truncated

Shape = list[list[tuple[bool, list[list[bool]]]]]
"""Groups of rollouts: whether it trains, and the mask of each of its segments."""


def segment(number: int, mask: list[bool], context: int = 3) -> Segment:
    count = len(mask)
    arrays: dict[str, Any] = {
        "token_ids": 100 * number + np.arange(count),
        "logprobs": -number - np.arange(count) / 100,
        "versions": np.zeros(count),
    }
    return Segment(context_ids=np.arange(context), policy_mask=np.array(mask, np.bool_), **arrays)


def made_batch(shape: Shape, context: int = 3) -> TrainBatch:
    groups, number = [], 0
    for place, members in enumerate(shape):
        rollouts = []
        for index, (_, masks) in enumerate(members):
            segments = tuple(segment(number := number + 1, mask, context) for mask in masks)
            turns = tuple(sum(mask) for mask in masks)
            stop = FinishReason.STOP
            rollouts.append(Rollout(prompt_id=f"p{place}", index=index, segments=segments, text="", finish=stop, turn_lengths=turns))
        scores = tuple(Score(value=1.0, in_loss=trains) for trains, _ in members)
        groups.append(Group(prompt_id=f"p{place}", episode=0, prompt_index=place, rollouts=tuple(rollouts), scores=scores))
    advantages = np.linspace(-1.0, 1.0, sum(map(len, shape)))
    return replace(assemble_batch(groups, advantages, BatchSettings(max_new_tokens=99)), seed=4)


masks = st.lists(st.booleans(), max_size=7)
members = st.tuples(st.booleans(), st.lists(masks, min_size=1, max_size=4))
shapes = st.lists(st.lists(members, min_size=1, max_size=4), min_size=1, max_size=3)


@settings(max_examples=80, deadline=None)
@given(shapes, st.integers(1, 6), st.integers(1, 60), st.booleans())
def test_each_policy_token_is_forwarded_once_with_its_own_values(shape: Shape, rollouts: int, tokens: int, everything: bool) -> None:
    batch = made_batch(shape)
    apart = batch.by_segment()
    assert all(len(one.segments) == 1 for one in apart.rollouts)
    assert [one.token_ids.tolist() for one in apart.rollouts if len(one.token_ids)] == [
        part.token_ids[part.policy_mask].tolist() for one in batch.rollouts for part in one.segments if part.policy_mask.any()
    ]
    for name in ("advantages", "rollout_logprobs", "weights"):
        assert getattr(apart, name) is getattr(batch, name)  # the axis of tokens is the same
    assert (apart.normalisers, apart.seed, apart.version) == (batch.normalisers, batch.seed, batch.version)
    assert not (apart.in_loss & (apart.lengths == 0)).any()
    kept = np.repeat(batch.in_loss | everything, batch.lengths)
    plan = plan_micro_batches(apart, rollouts=rollouts, tokens=tokens, prompts=2, everything=everything)
    micros = [collate(apart, rows) for rows in plan]
    forwarded = np.concatenate([np.zeros(0, np.int64), *(micro.index for micro in micros)])
    assert sorted(forwarded.tolist()) == np.flatnonzero(kept).tolist()
    ids = np.concatenate([np.zeros(0, np.int32), *(one.token_ids for one in batch.rollouts)])
    for micro in micros:
        assert micro.targets.tolist() == ids[micro.index].tolist()
        assert np.array_equal(micro.share.advantages, batch.advantages[micro.index])
        assert np.array_equal(micro.share.rollout_logprobs, batch.rollout_logprobs[micro.index])


def test_a_rollout_of_six_long_segments_runs_in_several_forwards() -> None:
    batch = made_batch([[(True, [[True] * 20] * 6), (True, [[True] * 20])]], context=30)
    bounds: dict[str, Any] = {"rollouts": 32, "tokens": 120, "prompts": 8}
    assert [rows.tolist() for rows in plan_micro_batches(batch, **bounds)] == [[0], [1]]
    assert collate(batch, np.array([0])).input_ids.numel() == 300  # all at once, beyond the bound
    apart = batch.by_segment()
    sizes = [collate(apart, rows).input_ids.numel() for rows in plan_micro_batches(apart, **bounds)]
    assert sizes == [100, 100, 100, 50]


def test_rollouts_of_one_segment_stay_as_they_are() -> None:
    batch = made_batch([[(True, [[True, False]]), (False, [[True]])]])
    assert batch.by_segment() is batch


class Averages(ClippedSurrogate):
    whole_rollouts = True


class Sequence(ClippedSurrogate):
    sequence_ratio = True


@pytest.mark.parametrize(
    ("loss", "settings", "whole"),
    [
        (ClippedSurrogate(), {}, False),
        (ClippedSurrogate(), {"kl_coeff": 0.1, "entropy_coeff": 0.1, "correction": Truncated((0.0, 2.0))}, False),
        (ClippedSurrogate(), {"correction": SequenceMasked((0.5, 2.0))}, True),
        (ClippedSurrogate(), {"skip_threshold": 2.0}, True),
        (Averages(), {}, True),
        (Sequence(), {}, True),
    ],
)
def test_what_combines_the_tokens_of_a_rollout_keeps_it_together(loss: Loss, settings: dict[str, Any], whole: bool) -> None:
    assert PolicyObjective(loss=loss, **settings).whole_rollouts is whole


def test_a_correction_for_tokens_cannot_read_rows_of_segments() -> None:
    class Silent(Correction):
        def weights(self, batch: Any) -> Any:
            return batch.row_mean(batch.old_logprobs), batch.old_logprobs > 0

    batch = made_batch([[(True, [[True, True], [True]])]]).by_segment()
    micro = collate(batch, np.array([0, 1]))
    logprobs = (micro.targets * -0.01).double().requires_grad_()
    with pytest.raises(Exception, match=r'row_mean is not available.*a correction per = "rollout"'):
        PolicyObjective(loss=ClippedSurrogate(), correction=Silent())(logprobs, micro.loss_batch(logprobs))
