"""RewardSuite ends what loops, and holds class, options and suite against the spec."""

from __future__ import annotations

import signal
import time
from dataclasses import replace
from typing import Any

import pytest
from suites_of_fakes import FakeRewardSuite

from rlcore.contracts.types import RewardInput, Score
from rlcore.testing.rewards.fake_reward import FakeReward
from rlcore.testing.time_limit import OverdueError, within

SPEC = FakeRewardSuite.spec
assert SPEC is not None


class Loops(FakeReward):
    """Never comes back from a text that is empty."""

    def score(self, item: RewardInput) -> Score:
        while not item.text.strip():
            pass
        return super().score(item)


class Swallows(FakeReward):
    """Tries again for ever, whatever is raised."""

    def score(self, item: RewardInput) -> Score:
        while not item.text.strip():
            try:
                time.sleep(60)
            except Exception:
                continue
        return super().score(item)


class ChecksForEver(FakeReward):
    def check(self, columns: Any) -> str | None:
        while True:
            pass


class JudgesGroupsForEver(FakeReward):
    def score_group(self, items: Any) -> list[Score]:
        while True:
            pass


def suite(**members: Any) -> FakeRewardSuite:
    """The suite of the fake, with other members."""
    return type("Suite", (FakeRewardSuite,), members)()


@pytest.mark.parametrize(
    ("bug", "rule", "said"),
    [
        (Loops, "test_never_raises_on_hostile_text", "^score of the text '' takes longer than the deadline of 0.3 s$"),
        (Swallows, "test_never_raises_on_hostile_text", "^score of the text '' takes longer than the deadline of 0.3 s$"),
        (ChecksForEver, "test_check_accepts_the_honest_row", "^check takes longer"),
        (JudgesGroupsForEver, "test_group_scores_in_order", "^score_group takes longer"),
    ],
)
def test_a_reward_that_loops_fails_its_test_at_the_deadline_of_its_spec(bug: type[FakeReward], rule: str, said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        getattr(suite(make=lambda self: bug(), spec=replace(SPEC, deadline=0.3)), rule)()


def test_without_a_spec_the_deadline_is_that_of_the_suite() -> None:
    with pytest.raises(AssertionError, match=r"the deadline of 0\.2 s"):
        suite(make=lambda self: Loops(), spec=None, deadline=0.2).test_never_raises_on_hostile_text()
    assert suite(spec=None).deadline == SPEC.deadline == 10.0


def test_the_timer_of_somebody_else_goes_on_afterwards() -> None:
    rung: list[int] = []
    handler = signal.signal(signal.SIGALRM, lambda signum, frame: rung.append(signum))
    before = signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(OverdueError), within(0.1, "a loop"):
            time.sleep(60)
        with within(60.0, "nothing"):
            pass
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= 0.3
        while not rung:
            time.sleep(0.01)
    finally:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, *before)


def test_without_a_spec_nothing_is_compared() -> None:
    suite(spec=None, gives_accuracy=False).test_class_and_spec_agree()
    suite().test_class_and_spec_agree()


class Other(FakeReward):
    requires = ("gt_answer", "other")


FAKE = "rlcore.testing.rewards.fake_reward:FakeReward"


@pytest.mark.parametrize(
    ("members", "said"),
    [
        ({"spec": replace(SPEC, requires=("gold",))}, r"requires is \('gt_answer',\) on its class and \('gold',\) in its spec"),
        ({"make": lambda self: Other()}, r"requires is \('gt_answer', 'other'\) on its class"),
        ({"spec": replace(SPEC, target="rlcore.testing.rewards.fake_reward:FakeRewards")}, "does not exist, did you mean 'FakeReward'"),
        ({"spec": replace(SPEC, target="rlcore.testing.rewards.fake_reward:FakeRewardOptions")}, "it must be a class derived from"),
        ({"spec": replace(SPEC, gives_accuracy=False)}, "gives_accuracy is True in the suite and False in the spec 'fake'"),
        ({"spec": replace(SPEC, config="")}, "options of the suite is FakeRewardOptions, config of the spec 'fake' names nothing"),
        ({"options": None}, "options of the suite is nothing, config of the spec 'fake' names FakeRewardOptions"),
        (
            {"spec": replace(SPEC, config="rlcore.testing.rewards.fake_reward:Options")},
            "its options model '.*:Options' does not exist",
        ),
        (
            {"spec": replace(SPEC, full_value_option="scale")},
            "full_value_option of the spec 'fake' is not an option of .*: scale",
        ),
        ({"make": lambda self: 3}, "gives a int, the target of the spec 'fake' is FakeReward"),
    ],
)
def test_a_suite_that_disagrees_with_the_spec_fails(members: dict[str, Any], said: str) -> None:
    with pytest.raises(AssertionError, match=said):
        suite(**members).test_class_and_spec_agree()
