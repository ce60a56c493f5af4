"""Outlines of groups: what a rank knows of groups whose tokens it does not compute on, and what it does not."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_plugin_torch.microbatch_planning import Cost

from rlcore.contracts.group_outlines import outline_of
from rlcore.contracts.interfaces import TrainingBackend
from rlcore.contracts.types import Group, Rollout, Score, Segment
from rlcore.learning.assemble import BatchSettings, assemble_batch
from rlcore.learning.shares import cut_shares
from rlcore.testing import make_rollout

COSTS = (lambda batch, rows: TrainingBackend.cost(Mock(), batch, rows), Cost(target=7).padded, Cost(target=7).packed)


def segment(context: list[int], mask: list[bool], version: int) -> Segment:
    count = len(mask)
    versions = [version + n % 3 for n in range(count)]
    return Segment(context_ids=context, token_ids=range(5, 5 + count), logprobs=[-0.5] * count, versions=versions, policy_mask=mask)  # type: ignore[arg-type]


SEGMENTS = st.builds(segment, st.lists(st.integers(0, 2), min_size=1, max_size=3), st.lists(st.booleans(), max_size=9), st.integers(0, 5))


@st.composite
def groups(draw: st.DrawFn) -> list[Group]:
    made = []
    for number in range(draw(st.integers(1, 5))):
        segments = draw(st.lists(st.lists(SEGMENTS, min_size=1, max_size=3), min_size=1, max_size=4))
        plain = make_rollout([1], [2], prompt_id=f"p{number}", text="said")
        rollouts = tuple(replace(plain, index=index, segments=tuple(own)) for index, own in enumerate(segments))
        scores = tuple(Score(value=1.0, in_loss=draw(st.booleans())) for _ in rollouts)
        made.append(Group(prompt_id=f"p{number}", episode=0, prompt_index=number, rollouts=rollouts, scores=scores))
    return made


def travelled(group: Group) -> Group:
    arrived: Group = pickle.loads(pickle.dumps(group, protocol=5))
    return arrived


@given(groups(), st.booleans(), st.booleans())
@settings(deadline=None)
def test_an_outline_weighs_what_the_group_weighs_and_has_no_token_of_it(made: list[Group], logprobs: bool, told: bool) -> None:
    outlines = [travelled(outline_of(group, logprobs=logprobs, told=told)) for group in made]
    whole, outlined = (assemble_batch(of, None, BatchSettings(max_new_tokens=9)) for of in (made, outlines))
    for name in ("group", "in_loss", "offsets", "weights", *(("rollout_logprobs",) if logprobs else ())):
        np.testing.assert_array_equal(getattr(outlined, name), getattr(whole, name))
    for cost in COSTS:
        for everything in (False, True):
            shares = zip(*(cut_shares(batch, 2, cost, everything=everything) for batch in (whole, outlined)), strict=True)
            assert all(mine.tolist() == theirs.tolist() for mine, theirs in shares)
    pairs = zip((r for g in made for r in g.rollouts), (r for g in outlines for r in g.rollouts), strict=True)
    for rollout, outline in pairs:
        assert (outline.version, outline.length, outline.finish) == (rollout.version, rollout.length, rollout.finish)
        assert outline.text == ("said" if told else "")
        for part in outline.segments:
            assert (part.token_ids < 0).all()
            assert (part.context_ids < 0).all()
            assert logprobs or np.isnan(part.logprobs).all()


def test_log_probabilities_travel_if_a_forced_token_has_none() -> None:
    nothing = float("nan")
    forced = Segment(context_ids=[1], token_ids=[5, 6], logprobs=[nothing, -0.5], versions=[0, 0], policy_mask=[False, True])  # type: ignore[arg-type]
    rollout = replace(make_rollout([1], [2]), segments=(forced,))
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=(rollout,), scores=(Score(value=1.0),))
    (arrived,) = travelled(outline_of(group, logprobs=True)).rollouts[0].segments
    np.testing.assert_array_equal(arrived.logprobs, np.array([nothing, -0.5], np.float32))


@pytest.mark.parametrize(("logprobs", "most"), [(False, 0.02), (True, 0.32)])
def test_an_outline_is_light(logprobs: bool, most: float) -> None:
    draw: Any = np.random.default_rng(0)
    rollouts = tuple(
        Rollout(prompt_id="p", index=n, text="", finish="stop", segments=(segment(list(range(200)), draw.random(1024) < 0.9, 0),))  # type: ignore[arg-type]
        for n in range(8)
    )
    group = Group(prompt_id="p", episode=0, prompt_index=0, rollouts=rollouts, scores=(Score(value=1.0),) * 8)
    assert len(pickle.dumps(outline_of(group, logprobs=logprobs), protocol=5)) < most * len(pickle.dumps(group, protocol=5))


@settings(max_examples=100)
@given(groups(), st.integers(0, 8), st.integers(0, 3))
def test_ranks_agree_whether_anything_of_a_group_is_young_enough_to_train(made: list[Group], version: int, bound: int) -> None:
    """Otherwise one rank takes an optimizer step, and the others do not."""
    bounded = BatchSettings(max_new_tokens=64, max_staleness=bound)
    for group in made:
        outlined = pickle.loads(pickle.dumps(outline_of(group)))
        whole, other = (assemble_batch([one], None, bounded, version=version) for one in (group, outlined))
        assert whole.weights.any() == other.weights.any()
        assert [rollout.version for rollout in whole.rollouts] == [rollout.version for rollout in other.rollouts]
