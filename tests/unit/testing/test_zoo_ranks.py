"""The rules of layouts catch planted bugs of several ranks: each by the rule that is meant for it, and by no other."""

from __future__ import annotations

import pytest
from suites_of_fakes import FakeTrainerSuite
from zoo_ranks import RANK_ZOO

from rlcore.testing import FakeTraining, TrainingLayoutSuite

RULES = [name for name in vars(TrainingLayoutSuite) if name.startswith("test_")]
ALSO = {
    "KeepsItsShare": "skip_alike load_elsewhere continue_exactly report_the_whole_step",
    "EmptyShareStepsOnNothing": "skip_alike continue_exactly",
    "ClipsEachShare": "skip_alike load_elsewhere report_the_whole_step",
    "SkipsAlone": "load_elsewhere",
    "DriftsElsewhere": "skip_alike load_elsewhere",
    "LeavesHeadUngathered": "skip_alike load_elsewhere save_whole continue_exactly",
    "HandsOutAnother": "train_like_one_process continue_exactly",
}
"""Bugs that others must see too: wrong weights stay wrong."""


def said(suite: type[FakeTrainerSuite], rule: str) -> str:
    """What a rule complains of."""
    try:
        getattr(suite(), rule)()
    except AssertionError as error:
        return str(error) or "nothing"
    return ""


@pytest.mark.full
@pytest.mark.parametrize("bug", RANK_ZOO, ids=lambda bug: bug.__name__)
def test_a_bug_of_ranks_fails_the_rule_that_is_meant_for_it(bug: type[FakeTraining]) -> None:
    rule, words = RANK_ZOO[bug]
    suite = type(f"{bug.__name__}Suite", (FakeTrainerSuite,), {"trainer": bug, "rank_counts": (2,)})
    found = {name.removeprefix("test_layouts_"): message for name in RULES if (message := said(suite, name))}
    assert rule in found, found
    with pytest.raises(AssertionError, match=words):
        raise AssertionError(found[rule])
    assert set(found) <= {rule, *ALSO.get(bug.__name__, "").split()}, found


def test_every_rule_of_layouts_has_a_bug_that_it_is_meant_for() -> None:
    assert {f"test_layouts_{rule}" for rule, _ in RANK_ZOO.values()} == set(RULES)
