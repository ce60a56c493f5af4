"""The reward that an environment gives to its own episodes."""

from __future__ import annotations

from numbers import Real

from rlcore.api import Outcome, Reward, RewardInput, Score
from rlcore_plugin_agents.agent_options import EnvironmentRewardOptions

__all__ = ["EnvironmentReward"]


class EnvironmentReward(Reward):
    """Passes on the environment's reward, with that of its turns. An episode without one has no score, which is not 0."""

    def __init__(self, options: EnvironmentRewardOptions) -> None:
        self._options = options

    def score(self, item: RewardInput) -> Score:
        """See Reward. Raises ValueError if the environment gave no reward, or no valid accuracy."""
        reward = item.extra.get("reward")
        if reward is None and item.extra.get("outcome") == "exhausted":
            reward = self._options.exhausted
            if reward is None:
                reason = "its budget was used up before it had a reward"
                return Score(value=0.0, outcome=Outcome.WRONG, reason=reason, in_statistics=False, in_loss=False)
        if not isinstance(reward, Real):
            how = item.extra.get("outcome", "not played by an environment")
            raise ValueError(f"the environment gave the episode no reward (outcome: {how})")
        given = item.extra.get("accuracy")
        accuracy = float(given) if isinstance(given, Real) else float(float(reward) >= self._options.solved)
        if not 0 <= accuracy <= 1:
            raise ValueError(f"the environment gave the accuracy {accuracy:g}; it must be from 0 to 1")
        outcome = Outcome.OK if accuracy == 1 else Outcome.WRONG
        return Score(value=float(reward), accuracy=accuracy, outcome=outcome, turn_rewards=item.turn_rewards)
