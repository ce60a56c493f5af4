"""The task with a calculator: its problems, and the environment that a newcomer reads and changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessage
from rlcore_plugin_quickstart.arithmetic import ASKED, TOOLS, Calculation, make_calculations
from rlcore_plugin_quickstart.calculator import CALCULATOR, calculate, play

PROBLEM = Calculation("what is", 47, "*", 36, guess="maybe 131")


def test_an_example() -> None:
    assert PROBLEM.row() == {"messages": {"role": "user", "content": "what is 47*36"}, "gt_answer": "1692"}
    assert [turn["content"] for turn in PROBLEM.lesson] == ["what is 47*36", "maybe 131"]
    assert [turn["content"] for turn in PROBLEM.solution] == ["what is 47*36", "", "1692", "1692"]


@settings(deadline=None, max_examples=25)
@given(seed=st.integers(0, 2**32), n_train=st.integers(1, 4000), n_heldout=st.integers(1, 300))
def test_no_held_out_problem_is_trained_on(seed: int, n_train: int, n_heldout: int) -> None:
    split = make_calculations(seed, n_train, n_heldout)
    assert split == make_calculations(seed, n_train, n_heldout)
    assert (len(split.train), len(split.heldout)) == (n_train, n_heldout)
    assert len({problem.expression for part in (split.train, split.heldout) for problem in part}) == n_train + n_heldout
    for part in (split.train, split.heldout):
        asked = [sum(problem.asked == words for problem in part) for words in ASKED]
        assert max(asked) - min(asked) <= 1
    assert all(problem.asked == "what is" for problem in split.train if problem.guess)


@pytest.mark.parametrize(
    ("arguments", "result"),
    [
        ('{"expression": "47*36"}', "1692"),
        ('{"expression": "47+36"}', "83"),
        ('{"expression": "47*36+1"}', "error"),
        ('{"expression": 47}', "error"),
        ("{}", "error"),
    ],
)
def test_the_calculator(arguments: str, result: str) -> None:
    assert calculate(arguments) == result


def test_the_warm_start_shows_the_name_of_the_environments_tool() -> None:
    assert [tool["function"]["name"] for tool in TOOLS] == [CALCULATOR["function"]["name"]]


class Scripted:
    """A model behind an OpenAI client that says what it is told; it keeps what it was asked."""

    name = "scripted"

    def __init__(self, *answers: Mapping[str, Any]) -> None:
        self.answers, self.asked = list(answers), list[list[Any]]()
        self.client = SimpleNamespace(chat=SimpleNamespace(completions=self))

    async def create(self, *, model: str, messages: list[Any], tools: list[Any]) -> Any:
        assert (model, tools) == ("scripted", [CALCULATOR])
        self.asked.append(list(messages))
        message = ChatCompletionMessage.model_validate({"role": "assistant", **self.answers.pop(0)})
        return SimpleNamespace(choices=[SimpleNamespace(message=message)])


def played(*answers: Mapping[str, Any]) -> tuple[float, Scripted]:
    model = Scripted(*answers)
    row = {"messages": [{"role": "user", "content": PROBLEM.question}], "gt_answer": PROBLEM.answer}
    return asyncio.run(play(model, row)), model


CALL = {"tool_calls": [{"id": "c1", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "47*36"}'}}]}


def test_the_result_of_a_call_is_told_and_its_copy_is_right() -> None:
    reward, model = played(CALL, {"content": "1692"})
    assert reward == 1.0
    assert model.asked[1][1:] == [{"role": "assistant", **CALL}, {"role": "tool", "tool_call_id": "c1", "content": "1692"}]


@pytest.mark.parametrize("answers", [[{"content": "maybe 131"}], [CALL, {"content": "1629"}], [CALL, CALL]])
def test_anything_else_is_wrong(answers: list[Mapping[str, Any]]) -> None:
    assert played(*answers)[0] == 0.0
