"""The reward that an environment gives to its own episodes."""

from __future__ import annotations

from collections.abc import Mapping
from numbers import Real
from typing import Any

from rlcore.api import Outcome, Reward, RewardInput, Score
from rlcore_plugin_agents.agent_options import EnvironmentRewardOptions

__all__ = ["EnvironmentReward", "environment_score"]


class EnvironmentReward(Reward):
    """Passes on the environment's rewards of the episode, its turns and branches. An episode without one has no score, which is not 0."""

    def __init__(self, options: EnvironmentRewardOptions) -> None:
        self._options = options

    def score(self, item: RewardInput) -> Score:
        """See Reward. Raises ValueError if the environment gave no reward, or no valid accuracy."""
        return environment_score(item.extra, item.turn_rewards, self._options)


def environment_score(extra: Mapping[str, Any], turn_rewards: tuple[float, ...], options: EnvironmentRewardOptions) -> Score:
    """Return the score of an episode from its ``extra``. Raises ValueError if there is no reward, or no valid accuracy."""
    reward = extra.get("reward")
    if reward is None and extra.get("outcome") == "exhausted":
        reward = options.exhausted
        if reward is None:
            reason = "its budget was used up before it had a reward"
            return Score(value=0.0, outcome=Outcome.WRONG, reason=reason, in_statistics=False, in_loss=False)
    if not isinstance(reward, Real):
        how = extra.get("outcome", "not played by an environment")
        raise ValueError(f"the environment gave the episode no reward (outcome: {how})")
    branches = tuple(float(reward) if given is None else float(given) for given in extra.get("branch_rewards", ()))
    given = extra.get("accuracy")
    solved = [value >= options.solved for value in branches or (float(reward),)]
    accuracy = float(given) if isinstance(given, Real) else sum(solved) / len(solved)
    if not 0 <= accuracy <= 1:
        raise ValueError(f"the environment gave the accuracy {accuracy:g}; it must be from 0 to 1")
    outcome = Outcome.OK if accuracy == 1 else Outcome.WRONG
    return Score(value=float(reward), accuracy=accuracy, outcome=outcome, turn_rewards=turn_rewards, branch_values=branches)
