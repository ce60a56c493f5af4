"""Both rewards keep the rules of every reward."""

from __future__ import annotations

from rlcore_plugin_math import rlcore_register_rewards
from rlcore_plugin_math.options import BoxedOptions, ThinkAnswerOptions
from rlcore_plugin_math.rewards import BoxedReward, ThinkAnswerReward

from rlcore.api import Message, Reward, RewardInput
from rlcore.testing import RewardSuite


def item(text: str) -> RewardInput:
    return RewardInput(messages=(Message(role="user", content="1 + 2?"),), columns={"gt_answer": "3", "id": "x"}, text=text)


SPECS = {spec.name: spec for spec in rlcore_register_rewards()}


class TestBoxed(RewardSuite):
    spec = SPECS["boxed"]
    options = BoxedOptions()

    def make(self) -> Reward:
        return BoxedReward(self.options)

    def honest(self) -> RewardInput:
        return item("so \\boxed{3}")

    def wrong(self) -> RewardInput:
        return item("so \\boxed{4}")


class TestThinkAnswerTags(RewardSuite):
    spec = SPECS["think_answer_tags"]
    options = ThinkAnswerOptions()

    def make(self) -> Reward:
        return ThinkAnswerReward(self.options)

    def honest(self) -> RewardInput:
        return item("<think>a</think><answer>3</answer>")

    def wrong(self) -> RewardInput:
        return item("<think>a</think><answer>4</answer>")
