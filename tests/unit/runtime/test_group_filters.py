"""Filters of a run at one group: who is asked what, what the group and its report say afterwards, and wrong answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlcore.api import FinishReason, Group, GroupFilter, Outcome, RlcoreError, Score
from rlcore.contracts.errors import FilterError
from rlcore.contracts.types import RolloutKind
from rlcore.runtime.group_filters import GroupFilters
from rlcore.schedule import Delivery
from rlcore.testing import make_rollout

REPORT = Delivery(lease_id=1, version=0, accuracy=0.5)


class Keeps(GroupFilter):
    """Keeps the given places, and remembers the ``in_loss`` that it saw."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer
        self.seen: list[list[bool]] = []

    def keep(self, group: Group) -> Sequence[bool]:
        self.seen.append([score.in_loss for score in group.scores])
        answer: Sequence[bool] = self.answer(group) if callable(self.answer) else self.answer
        return answer


def a_group(rollouts: int = 3) -> Group:
    made = tuple(make_rollout([1], [2, 3], index=index) for index in range(rollouts))
    return Group(prompt_id="p0", episode=0, prompt_index=0, rollouts=made, scores=(Score(value=1.0),) * rollouts)


def applied(group: Group, *filters: GroupFilter, report: Delivery = REPORT) -> tuple[list[bool], Delivery]:
    named = [(f"f{place}", f"group filter 'f{place}' of acme", one) for place, one in enumerate(filters)]
    found, said = GroupFilters(named).applied(group, report)
    assert found.rollouts == group.rollouts
    return [score.in_loss for score in found.scores], said


def test_a_rollout_stays_if_all_keep_it_and_later_filters_see_what_is_left() -> None:
    first, second = Keeps([True, True, False]), Keeps(np.array([False, True, False]))
    kept, report = applied(a_group(), first, second)
    assert kept == [False, True, False]
    assert second.seen == [[True, True, False]]
    assert report == replace(REPORT, removed=(("f0", 1), ("f1", 1)))


def test_a_group_without_a_rollout_for_the_loss_is_filtered_by_the_last_that_removed_one() -> None:
    last = Keeps([True] * 3)
    kept, report = applied(a_group(), Keeps([False, True, True]), Keeps([True, False, False]), last)
    assert not any(kept)
    assert report == replace(REPORT, removed=(("f0", 1), ("f1", 2)), filtered="f1")
    assert not last.seen


def test_what_cannot_train_is_shown_as_such_and_its_value_is_ignored() -> None:
    group = a_group(5)
    rollouts = [*group.rollouts[:3], replace(group.rollouts[3], kind=RolloutKind.GREEDY), make_rollout([1], [], index=4)]
    rollouts[1] = replace(rollouts[1], finish=FinishReason.ABORTED)
    scores = (Score(value=0.0), Score(value=0.0), Score.failed(Outcome.ERROR, "x"), Score(value=0.0), Score(value=0.0))
    group = replace(group, rollouts=tuple(rollouts), scores=scores)
    asked = Keeps([True, False, False, False, False])
    kept, report = applied(group, asked)
    assert asked.seen == [[True, False, False, False, False]]
    assert kept == [score.in_loss for score in scores]
    assert report == REPORT


def test_a_group_that_failed_is_not_filtered_and_keeping_all_changes_nothing() -> None:
    asked = Keeps([False] * 3)
    assert applied(a_group(), asked, report=replace(REPORT, failed="error"))[1].filtered == ""
    assert not asked.seen
    group = a_group()
    assert GroupFilters([("f", "f", Keeps([True] * 3))]).applied(group, REPORT) == (group, REPORT)


def _raises(group: Group) -> Sequence[bool]:
    raise KeyError("length")


def _leaves(group: Group) -> Sequence[bool]:
    raise SystemExit(3)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ([True, False], "returned 2 values from keep() for the 3 rollouts of prompt p0; it must return one bool for each"),
        ([1.0, 0.0, 1.0], "returned 1.0 from keep(); each value must be a bool"),
        ("yes", "from keep(); it must return one bool for each rollout"),
        (None, "from keep(); it must return one bool for each rollout"),
        (_raises, "failed while filtering the group of prompt p0: KeyError: 'length'"),
        (_leaves, "failed while filtering the group of prompt p0: SystemExit: 3"),
    ],
)
def test_a_wrong_answer_names_the_filter_and_its_distribution(answer: Any | Callable[..., Any], said: str) -> None:
    with pytest.raises(FilterError) as raised:
        applied(a_group(), Keeps(answer))
    assert isinstance(raised.value, RlcoreError)
    assert str(raised.value).startswith("group filter 'f0' of acme ")
    assert said in str(raised.value)
