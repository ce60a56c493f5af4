from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rlcore.api import FinishReason, Group, Rollout, RunError, Score, Segment, TrainBatch
from rlcore.learning import BatchSettings, assemble_batch, collate, plan_micro_batches

Shape = list[tuple[int, list[tuple[int, bool, int]]]]


def segment(context: np.ndarray, length: int, start: int) -> Segment:
    return Segment(
        context_ids=context,
        token_ids=np.arange(start, start + length),
        logprobs=np.zeros(length),
        versions=np.zeros(length),
        policy_mask=np.ones(length),
    )


def make_batch(shape: Shape) -> TrainBatch:
    """For each group its context length and, per rollout, tokens of each segment, whether it trains, segments."""
    groups = []
    for number, (context, members) in enumerate(shape):
        ids = np.arange(context) + 100 * number
        rollouts = tuple(
            Rollout(
                prompt_id=f"p{number}",
                index=index,
                segments=tuple(segment(ids if turn == 0 else np.arange(context + 5), length, 1000 * index) for turn in range(turns)),
                text="",
                finish=FinishReason.STOP,
            )
            for index, (length, _, turns) in enumerate(members)
        )
        scores = tuple(Score(value=0.0, in_loss=trains) for _, trains, _ in members)
        groups.append(Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=scores))
    return assemble_batch(groups, None, BatchSettings(max_new_tokens=64))


def test_a_micro_batch_of_one_temperature_has_a_number_and_one_of_several_a_value_a_token() -> None:
    batch = make_batch([(4, [(3, True, 1), (2, True, 1)]), (5, [(4, True, 1)])])
    heated = replace(
        batch, rollouts=tuple(replace(rollout, temperature=0.7 if rollout.prompt_id == "p0" else 1.1) for rollout in batch.rollouts)
    )
    for rows, value in (([0, 1], 0.7), ([2], 1.1)):
        assert collate(heated, np.array(rows)).temperature == value
        assert isinstance(collate(heated, np.array(rows)).temperature, float)
    each = collate(heated, np.array([2, 0, 1])).temperature
    assert isinstance(each, torch.Tensor)
    assert (each.tolist(), each.dtype) == ([1.1] * 4 + [0.7] * 5, torch.float64)


shapes = st.lists(
    st.tuples(st.integers(1, 20), st.lists(st.tuples(st.integers(0, 20), st.booleans(), st.integers(1, 2)), min_size=1, max_size=6)),
    min_size=1,
    max_size=5,
)


@settings(max_examples=80, deadline=None)
@given(shapes, st.integers(1, 8), st.integers(1, 200), st.integers(1, 4), st.booleans())
@example([(1, [(9, False, 2), (14, False, 1)]), (9, [(18, False, 1), (1, False, 2), (7, False, 1)])], 4, 135, 2, True)
def test_laws_of_the_cut(shape: Shape, rollouts: int, tokens: int, prompts: int, everything: bool) -> None:
    batch = make_batch(shape)
    plan = plan_micro_batches(batch, rollouts=rollouts, tokens=tokens, prompts=prompts, everything=everything)
    wanted = np.flatnonzero((batch.lengths > 0) & (batch.in_loss | everything))
    assert sorted(row for rows in plan for row in rows) == wanted.tolist()
    slices = {group: place // prompts for place, group in enumerate(dict.fromkeys(batch.group[wanted].tolist()))}
    for rows in plan:
        assert len(rows) <= rollouts
        assert (np.diff(rows) > 0).all()
        assert len({slices[int(group)] for group in batch.group[rows]}) == 1
        micro = collate(batch, rows)
        height, width = micro.input_ids.shape
        assert len(rows) == 1 or height * width <= tokens


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_every_policy_token_is_predicted_from_exactly_its_own_past(shape: Shape) -> None:
    """What stands before each predicting position must be context + the tokens before."""
    batch = make_batch(shape)
    rows = np.flatnonzero(batch.lengths > 0)
    if not len(rows):
        return
    micro = collate(batch, rows)
    width = micro.input_ids.shape[1]
    expected = [
        (np.concatenate([part.context_ids, part.token_ids[:t]]).tolist(), int(part.token_ids[t]))
        for row in rows
        for part in batch.rollouts[row].segments
        for t in range(len(part.token_ids))
    ]
    assert len(micro.select) == len(expected) == len(micro.index)
    for place, target, (past, token) in zip(micro.select.tolist(), micro.targets.tolist(), expected, strict=True):
        line, at = divmod(place, width)
        seen = torch.arange(width) <= at
        positions = micro.position_ids[line][seen]
        assert positions.tolist() == list(range(len(past)))
        assert micro.input_ids[line][seen].tolist() == past
        assert target == token


def test_rollouts_of_like_width_go_together() -> None:
    batch = make_batch([(4, [(20, True, 1), (2, True, 1), (19, True, 1), (3, True, 1)])])
    plan = plan_micro_batches(batch, rollouts=2, tokens=1000, prompts=1)
    assert [rows.tolist() for rows in plan] == [[0, 2], [1, 3]]


def test_a_rollout_wider_than_the_budget_goes_alone() -> None:
    batch = make_batch([(4, [(20, True, 1), (2, True, 1)])])
    assert [rows.tolist() for rows in plan_micro_batches(batch, rollouts=8, tokens=10, prompts=1)] == [[0], [1]]


def test_what_the_loss_sees() -> None:
    batch = make_batch([(3, [(2, True, 1), (1, True, 2), (4, False, 1)])])
    micro = collate(batch, np.array([0, 1]))
    logprobs = torch.linspace(-1, -0.5, 4, dtype=torch.float64, requires_grad=True)
    seen = micro.loss_batch(logprobs)
    assert seen.row.tolist() == [0, 0, 1, 1]
    assert seen.lengths.tolist() == [2, 2]
    assert seen.old_logprobs.tolist() == logprobs.tolist()
    assert not seen.old_logprobs.requires_grad
    assert seen.weights.dtype == torch.float64
    assert seen.normalisers == batch.normalisers


def test_a_segment_without_context_is_refused() -> None:
    batch = make_batch([(0, [(2, True, 1)])])
    with pytest.raises(RunError, match="prompt 'p0' has no context"):
        collate(batch, np.array([0]))
