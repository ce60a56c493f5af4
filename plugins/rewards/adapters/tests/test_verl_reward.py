"""Functions written for verl, run unmodified on rows as verl has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from rlcore_plugin_adapters import rlcore_register_rewards
from rlcore_plugin_adapters.adapter_options import VerlOptions
from rlcore_plugin_adapters.verl_reward import VerlReward

from rlcore.api import Message, Outcome, PluginError, Reward, RewardInput
from rlcore.testing import RewardSuite

FUNCTIONS = Path(__file__).with_name("verl_functions.py")
SPECS = {spec.name: spec for spec in rlcore_register_rewards()}
ROW = {
    "data_source": "openai/gsm8k",
    "ability": "math",
    "reward_model": {"style": "rule", "ground_truth": "72"},
    "extra_info": {"split": "train", "index": 7},
    "ground_truth": None,
    "gt_answer": None,
}


def reward(name: str, **options: Any) -> VerlReward:
    return VerlReward(VerlOptions(function=f"{FUNCTIONS}:{name}", **options))


def item(text: str, **columns: Any) -> RewardInput:
    return RewardInput(messages=(Message(role="user", content="48 + 24?"),), columns=ROW | columns, text=text)


class TestVerlFunction(RewardSuite):
    spec = SPECS["verl_function"]
    options = VerlOptions(function=f"{FUNCTIONS}:compute_score")

    def make(self) -> Reward:
        return VerlReward(self.options)

    def honest(self) -> RewardInput:
        return item("48 + 24 = 72\n#### 72")

    def wrong(self) -> RewardInput:
        return item("#### 71")


def test_the_file_of_the_documentation() -> None:
    made = reward("compute_score")
    scores = [made.score(item(text)) for text in ("#### 72", "#### 7", "72")]
    assert [(score.value, score.accuracy, score.outcome) for score in scores] == [
        (1.0, 1.0, Outcome.OK),
        (0.1, 0.0, Outcome.WRONG),
        (0.0, 0.0, Outcome.WRONG),
    ]


def test_a_mapping_has_the_score_the_accuracy_and_parts() -> None:
    score = reward("with_details", kwargs={"factor": 0.5}).score(item("it is 72"))
    assert (score.value, score.accuracy, score.parsed, dict(score.parts)) == (0.5, 1.0, "72", {"length": 8.0})
    assert reward("with_details").score(item("it is 71")).value == -1.0


def test_where_the_ground_truth_stands() -> None:
    made = reward("compute_score")
    assert made.check(ROW) is None
    assert "no ground truth" in str(made.check({"data_source": "x"}))
    assert made.score(item("#### 5", reward_model=None, gt_answer="5")).value == 1.0
    named = reward("compute_score", ground_truth="extra_info.answer")
    assert named.score(item("#### 6", extra_info={"answer": "6"})).value == 1.0
    assert "extra_info.answer" in str(named.check(ROW))


def test_rows_without_a_data_source() -> None:
    made = reward("compute_score", data_source="openai/gsm8k")
    bare = RewardInput(messages=(), columns={"gt_answer": "5"}, text="#### 5")
    assert made.score(bare).value == 1.0
    with pytest.raises(NotImplementedError):
        made.score(item("#### 5", data_source="other"))


def test_a_mapping_without_a_score_is_an_error() -> None:
    with pytest.raises(KeyError, match="without 'score': reward"):
        reward("without_score").score(item("x"))


@pytest.mark.parametrize(
    ("name", "kwargs", "said"),
    [
        ("no_extra_info", {}, "must also take extra_info"),
        ("of_a_batch", {}, "must also take data_source and solution_str and ground_truth and extra_info"),
        ("compute_score", {"factor": 2}, "must also take factor"),
        ("with_threshold", {}, "needs threshold, which verl does not pass"),
    ],
)
def test_a_function_that_verl_could_not_call_is_refused_at_once(name: str, kwargs: dict[str, Any], said: str) -> None:
    with pytest.raises(PluginError, match=said):
        reward(name, kwargs=kwargs)


def test_a_score_that_is_text_is_an_error() -> None:
    with pytest.raises(TypeError, match="the score is the text '1'"):
        reward("a_text").score(item("x"))


def test_what_no_function_can_be_given() -> None:
    with pytest.raises(ValidationError, match="kwargs may not contain ground_truth"):
        reward("compute_score", kwargs={"ground_truth": "3"})
    assert "extra_info is a str; it must be an object" in str(reward("compute_score").check(ROW | {"extra_info": "{}"}))
