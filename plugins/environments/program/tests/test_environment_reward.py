"""The reward that passes on what an environment says. It judges no text, so the suite for rewards does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from rlcore_plugin_agents.agent_options import EnvironmentRewardOptions
from rlcore_plugin_agents.environment_reward import EnvironmentReward

from rlcore.api import Outcome, RewardInput


def item(turn_rewards: tuple[float, ...] = (), **extra: Any) -> RewardInput:
    return RewardInput(messages=(), columns={}, text="a", turn_rewards=turn_rewards, extra=extra)


def reward(**options: Any) -> EnvironmentReward:
    return EnvironmentReward(EnvironmentRewardOptions(**options))


def test_value_and_turn_rewards_are_those_of_the_environment() -> None:
    score = reward().score(item((0.5, 2.0), reward=2.5, outcome="ok"))
    assert (score.value, score.turn_rewards, score.accuracy, score.outcome) == (2.5, (0.5, 2.0), 1.0, Outcome.OK)


@pytest.mark.parametrize("outcome", ["ok", "timeout"])
def test_a_missing_reward_is_a_failure_and_never_zero(outcome: str) -> None:
    with pytest.raises(ValueError, match=rf"gave the episode no reward \(outcome: {outcome}\)"):
        reward().score(item(reward=None, outcome=outcome))


def test_a_used_up_budget_without_a_reward_has_the_value_of_the_option() -> None:
    used_up = item(reward=None, outcome="exhausted")
    assert reward().score(used_up).value == 0.0
    assert reward(exhausted=-1.0).score(used_up).value == -1.0
    assert not reward(exhausted=None).score(used_up).in_loss
    assert reward().score(item(reward=0.75, outcome="exhausted")).value == 0.75


def test_accuracy_is_that_of_the_environment_or_a_matter_of_the_threshold() -> None:
    assert reward().score(item(reward=0.2, accuracy=0.5, outcome="ok")).accuracy == 0.5
    assert reward(solved=0.2).score(item(reward=0.2, outcome="ok")).accuracy == 1.0
    with pytest.raises(ValueError, match="accuracy 2; it must be from 0 to 1"):
        reward().score(item(reward=5.0, accuracy=2.0, outcome="ok"))
