"""Several verdicts become one score."""

import pytest

from rlcore.contracts.types import Outcome, Score
from rlcore.rewards.reward_mixer import mix


def test_one_reward_keeps_its_verdict():
    score = Score(value=10.0, accuracy=1.0, format_ok=True, parts={"digits": 4.0})
    mixed = mix([("boxed", 1.0, score)])
    assert (mixed.value, mixed.accuracy, mixed.format_ok, mixed.outcome) == (10.0, 1.0, True, Outcome.OK)
    assert mixed.parts == {"boxed": 10.0, "boxed/digits": 4.0, "boxed/accuracy": 1.0}


def test_weights_and_the_first_that_speaks():
    brief = Score(value=-2.0, outcome=Outcome.WRONG, reason="too long")
    right = Score(value=10.0, accuracy=0.5, format_ok=False)
    mixed = mix([("brief", 0.5, brief), ("boxed", 2.0, right)])
    assert (mixed.value, mixed.accuracy, mixed.format_ok) == (19.0, 0.5, False)
    assert mixed.raw == {"brief": -2.0, "boxed": 10.0}
    assert (mixed.outcome, mixed.reason) == (Outcome.WRONG, "too long")


@pytest.mark.parametrize("outcome", [Outcome.TIMEOUT, Outcome.ERROR, Outcome.INFRA, Outcome.INVALID])
def test_a_failure_masks_the_whole(outcome):
    mixed = mix([("a", 1.0, Score(value=5.0)), ("b", 1.0, Score.failed(outcome, "why"))])
    assert mixed == Score.failed(outcome, "b: why")


def test_masks_must_agree():
    mixed = mix([("a", 1.0, Score(value=1.0, in_loss=False)), ("b", 1.0, Score(value=1.0, in_statistics=False))])
    assert (mixed.in_loss, mixed.in_statistics) == (False, False)


def test_token_rewards_are_weighted_and_added_where_rewards_give_them() -> None:
    a, b = Score(value=1.0, token_rewards=(1.0, 0.0)), Score(value=1.0, token_rewards=(0.5, 2.0))
    assert mix([("a", 2.0, a), ("plain", 1.0, Score(value=1.0)), ("b", 1.0, b)]).token_rewards == (2.5, 2.0)
    assert mix([("plain", 1.0, Score(value=1.0))]).token_rewards is None
    failed = mix([("a", 2.0, a), ("b", 1.0, Score(value=1.0, token_rewards=(1.0,)))])
    assert (failed.outcome, failed.reason) == (Outcome.ERROR, "the rewards gave 2 and 1 token rewards")
