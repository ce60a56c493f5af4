"""Rewards of rlcore as reward functions of TRL, called as its trainer calls them. ``make test-trl`` has the trainer do it."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator
from typing import Any

import pytest
from rlcore_plugin_adapters import trl

from rlcore.api import ConfigError, DataError, PluginError, Reward, RewardInput, Score


def measured(item: RewardInput) -> Score:
    """The length, unless the text asks for trouble."""
    if item.text == "hang":
        time.sleep(1000)
    if item.text == "die":
        os.kill(os.getpid(), 9)
    if item.text == "raise":
        raise ValueError("no")
    return Score(value=float(len(item.text)), in_loss=item.text != "mask")


class Rank(Reward):
    """The place among the responses of a prompt, by length."""

    group_level = True
    requires = ("kind",)

    def check(self, columns: Any) -> str | None:
        return None if columns.get("kind") else "kind is blank"

    def score(self, item: RewardInput) -> Score:
        return Score(value=0.0)

    def score_group(self, items: Any) -> list[Score]:
        order = sorted(len(item.text) for item in items)
        return [Score(value=float(order.index(len(item.text)))) for item in items]


@pytest.fixture
def made() -> Iterator[list[Any]]:
    """What is put in here is closed afterwards."""
    functions: list[Any] = []
    yield functions
    for function in functions:
        function.close()


def chat(*texts: str) -> list[list[dict[str, str]]]:
    return [[{"role": "assistant", "content": text}] for text in texts]


def test_a_named_reward_judges_both_forms_of_trl(made: list[Any]) -> None:
    function = trl("boxed", options={"correct_score": 1.0}, columns={"gt_answer": "solution"}, workers=1, length_limit=3)
    made.append(function)
    assert function.__name__ == "boxed"
    ids = [[1], [1], [1, 2, 3]]
    texts = ["\\boxed{5}", "\\boxed{6}", "\\boxed{5}"]
    logged: dict[str, float] = {}
    more = {"trainer_state": object(), "log_metric": logged.__setitem__, "log_extra": print, "solution": ["5"] * 3}
    assert function(prompts=["2 + 3?"] * 3, completions=texts, completion_ids=ids, **more) == [1.0, 0.0, 0.0]
    prompts = [[{"role": "user", "content": "2 + 3?"}]] * 3
    assert function(prompts=prompts, completions=chat(*texts), completion_ids=ids, **more) == [1.0, 0.0, 0.0]
    assert logged == {"boxed/no_verdict": 0.0}


def test_no_verdict_is_none_and_is_said(made: list[Any], caplog: pytest.LogCaptureFixture) -> None:
    function = trl(measured, deadline=0.5, workers=2)
    made.append(function)
    logged: dict[str, float] = {}
    with caplog.at_level(logging.WARNING):
        texts = ["ab", "hang", "die", "raise", "mask", ""]
        values = function(prompts=["?"] * 6, completions=texts, log_metric=logged.__setitem__)
    assert values == [2.0, None, None, None, None, 0.0]
    assert logged == {"measured/no_verdict": 0.5}
    assert "3 of 6 responses have no verdict (1 timeout, 1 infra, 1 error)" in caplog.text


def test_several_are_added_up_and_one_without_a_verdict_leaves_no_reward(made: list[Any]) -> None:
    boxed = {"name": "boxed", "options": {"correct_score": 1.0}, "weight": 10.0}
    function = trl([boxed, {"name": measured, "deadline": 5.0}], workers=1)
    made.append(function)
    assert function.__name__ == "boxed+measured"
    assert function(prompts=["?"] * 3, completions=["\\boxed{5}", "five", "raise"], gt_answer=["5"] * 3) == [19.0, 4.0, None]


def test_a_reward_of_groups_gets_those_of_a_prompt(made: list[Any]) -> None:
    function = trl(Rank, workers=1)
    made.append(function)
    prompts, texts = ["a", "a", "b", "b"], ["xx", "x", "x", "xxxx"]
    assert function(prompts=prompts, completions=texts, kind=["k"] * 4) == [1.0, 0.0, 0.0, 1.0]


def test_a_row_that_cannot_be_judged_is_refused(made: list[Any]) -> None:
    function = trl(Rank, workers=1)
    made.append(function)
    for _ in range(2):
        with pytest.raises(DataError, match=r"rank cannot judge the row .*: kind is blank"):
            function(prompts=["a"], completions=["x"], kind=[""])
    assert function(prompts=["a"], completions=["x"], kind=["k"]) == [0.0]


def test_names_and_options_that_are_refused() -> None:
    with pytest.raises(PluginError, match="nothing_here"):
        trl("nothing_here")
    with pytest.raises(ConfigError, match="correct_score"):
        trl("boxed", options={"correct_score": -1})


def test_it_may_be_closed_before_it_was_called() -> None:
    trl("boxed").close()


def test_a_column_that_the_data_set_lacks_is_named() -> None:
    reward = trl("boxed")
    with pytest.raises(DataError, match=r'no column "gt_answer", which reward boxed needs \(it has solution\).*columns='):
        reward(prompts=["1+2"], completions=["3"], solution=["3"])
    reward.close()


@pytest.mark.parametrize(("rewards", "said"), [([], "no reward"), ([{"nam": "boxed"}], "has no name")])
def test_a_list_without_rewards_is_refused(rewards: Any, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        trl(rewards)
