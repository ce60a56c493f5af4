"""What the two rewards take for the answer: after the reasoning only, and by the options of ``extract``."""

import pytest
from rlcore_plugin_math.extract import tags_in_order
from rlcore_plugin_math.options import BoxedOptions, ThinkAnswerOptions
from rlcore_plugin_math.rewards import BoxedReward, ThinkAnswerReward

from rlcore.api import Outcome, RewardInput


def judge(reward, gold, text):
    return reward.score(RewardInput(messages=(), columns={"gt_answer": gold}, text=text))


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        (r"<think>\boxed{42}</think> other", Outcome.MALFORMED),
        (r"<think>\boxed{42}</think> \boxed{41}", Outcome.WRONG),
        (r"<think>\boxed{41}</think> \boxed{42}", Outcome.OK),
        (r"\boxed{42}</think> other", Outcome.MALFORMED),
        (r"so </think> \boxed{42}", Outcome.OK),
        (r"<think> \boxed{42}", Outcome.MALFORMED),
        (r"<think>a</think> b <think> \boxed{42}", Outcome.MALFORMED),
        (r"so \boxed{42}", Outcome.OK),
    ],
)
def test_a_box_counts_only_after_the_reasoning(text, outcome):
    score = judge(BoxedReward(), "42", text)
    assert (score.outcome, score.accuracy) == (outcome, float(outcome is Outcome.OK))


def test_the_box_in_the_reasoning_counts_if_the_user_says_so():
    options = BoxedOptions(extract={"think": "ignore"})
    assert judge(BoxedReward(options), "42", r"<think>\boxed{42}</think> other").outcome is Outcome.OK


def test_another_way_of_marking_by_an_option():
    reward = BoxedReward(BoxedOptions(extract={"by": ["hashes", "last_number"]}))
    assert judge(reward, "1/2", "1 #### 0.5").outcome is Outcome.OK
    assert judge(reward, "3", "I count 3 of them").outcome is Outcome.OK
    none = judge(reward, "3", "none")
    assert (none.outcome, none.reason) == (Outcome.MALFORMED, "no #### followed by an answer; no number")


def test_the_answer_in_the_tags_may_be_marked_once_more():
    reward = ThinkAnswerReward(ThinkAnswerOptions(extract={"by": "boxed"}))
    assert judge(reward, "5", r"<think>a</think><answer>it is \boxed{5}</answer>").outcome is Outcome.OK
    assert judge(reward, "5", r"<think>\boxed{5}</think><answer>5</answer>").outcome is Outcome.MALFORMED


@pytest.mark.parametrize(
    ("text", "valid"),
    [
        ("<think>a</think><answer>5</answer>", True),
        ("well <think>a</think> so <answer> 5 </answer> \n", True),
        ("<think>a</think><answer>5</answer>.", False),
        ("<think>a</think><answer>4</answer><answer>5</answer>", False),
        ("<answer>5</answer><think>a</think>", False),
        ("<think>a<answer>5</answer></think>", False),
        ("<answer>5</answer>", False),
        ("<think>a</think><answer>5", False),
        ("", False),
    ],
)
def test_tags(text, valid):
    assert tags_in_order(text) is valid
