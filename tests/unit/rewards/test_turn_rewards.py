"""Turn rewards: one for each message of the policy, finite, weighted and added like values; a reward always sees the turns."""

from __future__ import annotations

import pytest

from rlcore.contracts.types import Message, RewardInput, Score
from rlcore.rewards.reward_mixer import mix
from rlcore.rewards.worker_results import checked

TURNS = (
    Message(role="assistant", content="4", policy=True),
    Message(role="user", content="higher"),
    Message(role="assistant", content="7", policy=True),
)
TALK = RewardInput(messages=(), columns={}, text="7", turns=TURNS)
ANSWER = RewardInput(messages=(), columns={}, text="7")


def test_a_single_answer_is_its_one_turn() -> None:
    assert ANSWER.turns == (Message(role="assistant", content="7", policy=True),)


@pytest.mark.parametrize(("item", "rewards"), [(TALK, (0.0, 1.0)), (TALK, ()), (ANSWER, (0.5,)), (ANSWER, ())])
def test_one_for_each_turn_of_the_policy_is_taken(item: RewardInput, rewards: tuple[float, ...]) -> None:
    assert checked(Score(value=1.0, turn_rewards=rewards), item).turn_rewards == rewards


@pytest.mark.parametrize(
    ("item", "rewards", "said"),
    [
        (TALK, (1.0,), "turn_rewards has 1 numbers; the policy has 2 turns"),
        (TALK, (0.0, 0.0, 1.0), "turn_rewards has 3 numbers; the policy has 2 turns"),
        (ANSWER, (0.0, 1.0), "turn_rewards has 2 numbers; the policy has 1 turns"),
        (ANSWER, (float("nan"),), "a turn reward is nan; it must be finite"),
    ],
)
def test_others_are_an_error_of_the_reward(item: RewardInput, rewards: tuple[float, ...], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        checked(Score(value=1.0, turn_rewards=rewards), item)


def test_those_of_several_rewards_are_weighted_and_added() -> None:
    first, second = Score(value=1.0, turn_rewards=(0.0, 1.0)), Score(value=2.0, turn_rewards=(0.5, 1.5))
    silent = Score(value=4.0)
    mixed = mix([("a", 2.0, first), ("b", 0.5, second), ("c", 1.0, silent)])
    assert mixed.turn_rewards == (0.25, 2.75)
    assert mixed.value == 7.0
    assert mix([("c", 1.0, silent)]).turn_rewards == ()
