"""The two rewards as the engine sees them: values, outcomes, options."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from rlcore_plugin_math import rlcore_api, rlcore_register_rewards
from rlcore_plugin_math.options import BoxedOptions, ThinkAnswerOptions
from rlcore_plugin_math.rewards import BoxedReward, ThinkAnswerReward

from rlcore.api import FinishReason, Outcome, RewardInput


def judge(reward, gold, text, finish=FinishReason.STOP):
    return reward.score(RewardInput(messages=(), columns={"gt_answer": gold}, text=text, finish=finish))


def test_boxed_verdicts():
    reward = BoxedReward(BoxedOptions(format_score=1.0))
    right = judge(reward, "1 3 6 8", r"so \boxed{1 3 6 8}")
    assert (right.value, right.accuracy, right.format_ok, right.outcome) == (10.0, 1.0, True, Outcome.OK)
    wrong = judge(reward, "1 3 6 8", r"so \boxed{3 1 6 8}")
    assert (wrong.value, wrong.accuracy, wrong.format_ok, wrong.outcome) == (1.0, 0.0, True, Outcome.WRONG)
    malformed = judge(reward, "1 3 6 8", "so 1 3 6 8")
    assert (malformed.value, malformed.accuracy, malformed.format_ok, malformed.outcome) == (0.0, 0.0, False, Outcome.MALFORMED)
    unparseable = judge(reward, "5", r"\boxed{?}")
    assert (unparseable.value, unparseable.outcome) == (1.0, Outcome.UNPARSEABLE)


def test_a_gold_of_any_plain_type():
    assert judge(BoxedReward(), 5, r"\boxed{5}").outcome is Outcome.OK
    assert BoxedReward().check({"gt_answer": 0.5}) is None
    assert "list" in BoxedReward().check({"gt_answer": ["5"]})
    assert "bool" in BoxedReward().check({"gt_answer": True})


def test_a_truncated_response_earns_nothing():
    score = judge(BoxedReward(BoxedOptions(format_score=1.0)), "5", r"\boxed{5}", FinishReason.LENGTH)
    assert (score.value, score.accuracy, score.outcome, score.reason) == (0.0, 0.0, Outcome.WRONG, "truncated")
    assert score.in_statistics
    assert score.in_loss


def test_half_credit_where_algebra_cannot_parse_a_right_answer():
    score = judge(BoxedReward(), "@?!", r"\boxed{@?!.}")
    assert score.outcome is Outcome.OK
    half = judge(BoxedReward(BoxedOptions(correct_score=4)), "?!A@", r"\boxed{?! a@}".replace(" ", ""))
    assert (half.value, half.accuracy, half.outcome) == (2.0, 1.0, Outcome.OK)


def test_the_answer_counts_only_in_a_valid_format():
    reward = ThinkAnswerReward(ThinkAnswerOptions(correct_score=3))
    assert judge(reward, "5", "<think>a</think> <answer> 5 </answer>\n").value == 3.0
    assert judge(reward, "5", "<answer>5</answer>").outcome is Outcome.MALFORMED
    assert judge(reward, "5", "<think>5</think><answer>6</answer>").outcome is Outcome.WRONG


@pytest.mark.parametrize("answer", ["9^{9^{9}}", "1" * 2000])
def test_a_limit_is_a_wrong_answer_that_trains(answer):
    score = judge(BoxedReward(), "42", rf"\boxed{{{answer}}}")
    assert score.outcome is Outcome.WRONG
    assert score.reason.startswith("limit")
    assert score.in_loss


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"correct_score": 0}, "greater than 0"),
        ({"correct_score": -1}, "greater than 0"),
        ({"correct_score": float("inf")}, "finite"),
        ({"format_score": 10}, "at most half of correct_score 10"),
        ({"format_score": 6}, "at most half of correct_score 10"),
        ({"format_score": -1}, "set malformed_score = -1 or lower"),
        ({"malformed_score": 1}, "malformed_score 1 must be at most format_score 0"),
        ({"strictness": "lax"}, "'standard' or 'strict'"),
        ({"max_chars": 20_000}, "less than or equal to 10000"),
        ({"time_limit": 0}, "greater than 0"),
        ({"colour": 1}, "Extra inputs"),
    ],
)
def test_options_that_break_a_rule(options, says):
    with pytest.raises(ValidationError, match=re.escape(says)):
        BoxedOptions(**options)


def test_the_scores_of_dapo():
    """Right 1, everything else -1."""
    reward = BoxedReward(BoxedOptions(correct_score=1, format_score=-1, malformed_score=-1))
    values = [judge(reward, "5", text).value for text in (r"\boxed{5}", r"\boxed{6}", "5", r"\boxed{?}")]
    assert values == [1.0, -1.0, -1.0, -1.0]
    assert judge(reward, "5", r"\boxed{5}", FinishReason.LENGTH).value == -1.0


@given(st.floats(0.01, 100), st.floats(-100, 50), st.floats(-100, 50))
def test_no_response_gains_by_being_worse(correct, wrong, malformed):
    try:
        options = BoxedOptions(correct_score=correct, format_score=wrong, malformed_score=malformed)
    except ValidationError:
        return
    reward = BoxedReward(options)
    right, half, other, none = (judge(reward, "?!A@", text).value for text in (r"\boxed{?!A@}", r"\boxed{?!a@}", r"\boxed{6}", "5"))
    assert right > half >= other >= none


def test_a_truncated_response_is_judged_where_no_end_is_required():
    reward = BoxedReward(BoxedOptions(require_eos=False, format_score=1, malformed_score=-1))
    assert judge(reward, "5", r"\boxed{5} and", FinishReason.LENGTH).value == 10.0
    assert judge(reward, "5", r"\boxed{6} and", FinishReason.LENGTH).value == 1.0
    assert judge(reward, "5", r"so 5", FinishReason.LENGTH).value == -1.0


def test_strict_gives_nothing_for_text():
    reward = BoxedReward(BoxedOptions(strictness="strict"))
    assert judge(reward, "?!A@", r"\boxed{?!a@}").outcome is Outcome.UNPARSEABLE
    assert judge(reward, "?!A@", r"\boxed{?!A@}").value == 10.0
    assert judge(reward, "5", r"\boxed{5 cm}").outcome is Outcome.WRONG


def test_what_the_plugin_declares():
    specs = {spec.name: spec for spec in rlcore_register_rewards()}
    assert rlcore_api == "2.0"
    assert set(specs) == {"boxed", "think_answer_tags"}
    assert specs["think_answer_tags"].stop == ("</answer>",)
    assert "\\boxed{}" in specs["boxed"].system_prompt
    assert all(tag in specs["think_answer_tags"].system_prompt for tag in ("<think>", "</think>", "<answer>", "</answer>"))
    assert all(spec.requires == ("gt_answer",) for spec in specs.values())
