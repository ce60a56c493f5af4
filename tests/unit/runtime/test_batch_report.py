"""The figures of a batch against a case by hand, and the rows of the rollout log: whose advantage is whose, which groups are logged."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.contracts.types import FinishReason, Group, Message, Outcome, Prompt, Rollout, RolloutKind, Score, Segment
from rlcore.runtime.batch_report import Batch, batch_figures, logged_groups, rollout_rows, with_prompts


def rollout(index: int, length: int, kind: RolloutKind = RolloutKind.SAMPLED) -> Rollout:
    """Every token has the log probability -0.5, but for one that was forced, which had -9."""
    segment = Segment(
        context_ids=[1],
        token_ids=[5] * (length + 1),
        logprobs=[-0.5] * length + [-9.0],
        versions=[3] * (length + 1),
        policy_mask=[True] * length + [False],
    )
    return Rollout(prompt_id="q", index=index, kind=kind, segments=(segment,), text=f"text {index}", finish=FinishReason.STOP)


def group(number: int, scores: list[Score], *, greedy: bool = False) -> Group:
    rollouts = [rollout(index, index + 1) for index in range(len(scores))]
    if greedy:
        rollouts.append(rollout(len(scores), 9, RolloutKind.GREEDY))
        scores = [*scores, Score(value=7.0)]
    return Group(prompt_id=f"q{number}", episode=0, prompt_index=number, rollouts=tuple(rollouts), scores=tuple(scores))


def batch(*groups: Group, masked: frozenset[int] = frozenset()) -> Batch:
    return Batch(groups=groups, masked=masked, version=4)


def test_the_figures_of_a_case_by_hand() -> None:
    """Rewards 1, 3 and 2, 2, and a group whose second verdict failed: 5 count; deviations within groups are 1 and 0."""
    mixed = [Score(value=1.0, parts={"a": 1.0}), Score(value=3.0, parts={"a": 2.0, "b": 5.0})]
    half = [Score(value=2.0), Score.failed(Outcome.TIMEOUT, "late")]
    found = batch_figures(batch(group(0, mixed, greedy=True), group(1, [Score(value=2.0), Score(value=2.0)]), group(2, half)))
    assert found["reward/mean"] == 2.0
    assert found["reward/std"] == pytest.approx(math.sqrt(2 / 5))
    assert (found["reward/group_std"], found["groups/zero_spread"]) == (0.5, 0.5)
    assert (found["reward/part/a"], found["reward/part/b"]) == (1.5, 5.0)
    assert found["entropy/sampled"] == pytest.approx(0.5)  # of tokens that were sampled, greedy answers aside
    lengths = ("mean", "max", "p10", "p50", "p90")
    assert [found[f"response_length/{name}"] for name in lengths] == [1.5, 2.0, 1.0, 1.5, 2.0]


def test_each_rollout_has_its_own_advantage_and_a_greedy_one_has_none() -> None:
    one, two = group(0, [Score(value=1.0), Score(value=2.0)], greedy=True), group(1, [Score(value=3.0)])
    rows = list(rollout_rows(batch(one, two, masked=frozenset({1})), np.array([0.25, -0.5, 0.75], np.float32)))
    assert [(row["prompt_id"], row["index"], row["advantage"], row["masked"], row["step"]) for row in rows] == [
        ("q0", 0, 0.25, False, 5),
        ("q0", 1, -0.5, False, 5),
        ("q0", 2, None, False, 5),
        ("q1", 0, 0.75, True, 5),
    ]
    assert [row["advantage"] for row in rollout_rows(batch(one))] == [None] * 3


def test_a_row_gets_the_prompt_of_its_group() -> None:
    prompts = [
        Prompt(prompt_id=f"q{n}", index=n, messages=(Message(role="user", content=f"ask {n}"),), columns={"gt_answer": str(n)})
        for n in range(2)
    ]
    rows = list(with_prompts(rollout_rows(batch(group(1, [Score(value=1.0)]), group(0, [Score(value=1.0)]))), {"train": prompts}))
    assert [(row["prompt"], row["gold"]) for row in rows] == [([{"role": "user", "content": f"ask {n}"}], str(n)) for n in (1, 0)]


@given(st.integers(1, 40), st.floats(0.01, 1.0), st.integers(0, 9))
def test_a_share_of_the_groups_is_drawn_by_the_seed(count: int, share: float, seed: int) -> None:
    groups: list[Any] = [group(number, [Score(value=0.0)]) for number in range(count)]
    logged = logged_groups(batch(*groups), share, seed)
    assert logged == sorted(set(logged))
    assert len(logged) == max(1, round(share * count))
    turned = logged_groups(batch(*reversed(groups)), share, seed)
    assert {groups[place].prompt_id for place in logged} == {groups[::-1][place].prompt_id for place in turned}, "whatever their order"
    with_share = {row["prompt_id"] for row in rollout_rows(batch(*groups), share=share, seed=seed)}
    assert with_share == {groups[place].prompt_id for place in logged}


def test_another_seed_draws_others() -> None:
    groups = [group(number, [Score(value=0.0)]) for number in range(40)]
    assert len({tuple(logged_groups(batch(*groups), 0.5, seed)) for seed in range(5)}) == 5
