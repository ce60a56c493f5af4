"""Functions written for TRL, run unmodified."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError
from rlcore_plugin_adapters import rlcore_register_rewards
from rlcore_plugin_adapters.adapter_options import TrlOptions
from rlcore_plugin_adapters.trl_reward import TrlReward

from rlcore.api import Message, Outcome, PluginError, Reward, RewardInput
from rlcore.api.judging import PendingScores, RewardEntry, RewardMixer
from rlcore.testing import RewardSuite

FUNCTIONS = Path(__file__).with_name("trl_functions.py")
SPECS = {spec.name: spec for spec in rlcore_register_rewards()}


def reward(name: str, **options: Any) -> TrlReward:
    made = TrlReward(TrlOptions(function=f"{FUNCTIONS}:{name}", **options))
    made.open()
    return made


def item(text: str, tokens: int | None = None, **columns: Any) -> RewardInput:
    ids = None if tokens is None else np.arange(tokens, dtype=np.int32)
    return RewardInput(messages=(Message(role="user", content="2 + 3?"),), columns=columns, text=text, token_ids=ids)


class TestTrlFunction(RewardSuite):
    spec = SPECS["trl_function"]
    options = TrlOptions(function=f"{FUNCTIONS}:box_is_right")

    def make(self) -> Reward:
        return TrlReward(self.options)

    def honest(self) -> RewardInput:
        return item("so \\boxed{5}", solution="5", other="x")

    def wrong(self) -> RewardInput:
        return item("so \\boxed{6}", solution="5", other="x")


def test_the_columns_that_the_signature_names_are_required() -> None:
    made = reward("box_is_right")
    assert made.requires == ("prompt", "solution"), "prompt decides the form of the arguments"
    assert reward("box_is_right", form="text").requires == ("solution",)
    assert made.check({"solution": "5"}) is None
    assert "column solution" in str(made.check({}))


def test_a_function_receives_messages_with_their_tool_calls(tmp_path: Path) -> None:
    file = tmp_path / "calls.py"
    file.write_text("def calls(completions, **rest):\n    return [float(len(one[0].get('tool_calls', []))) for one in completions]\n")
    made = TrlReward(TrlOptions(function=f"{file}:calls", form="conversational"))
    made.open()
    call = {"type": "function", "function": {"name": "add", "arguments": {}}}
    turn = Message(role="assistant", content="", policy=True, tool_calls=(call, call))
    assert made.score(RewardInput(messages=(), columns={}, text="", turns=(turn,))).value == 2.0
    assert made.score(item("x")).value == 0.0


def test_text_form_token_ids_and_metrics() -> None:
    made = reward("text_is_long", form="text", right=0.65)
    score = made.score(item("abcde", tokens=3))
    assert (score.value, score.accuracy, dict(score.parts)) == (0.65, 1.0, {"tokens": 3.0})
    with pytest.raises(RuntimeError, match="completion_ids"):
        made.score(item("abcde"))


def test_none_is_not_zero() -> None:
    none = reward("only_mathematics").score(item("x", task="code"))
    assert (none.in_loss, none.in_statistics, none.accuracy, none.reason) == (False, False, None, "the function does not apply")
    assert reward("only_mathematics").score(item("x", task="math")).value == 1.0
    assert reward("only_mathematics", not_applicable="nothing").score(item("x", task="code")).in_loss


def test_an_asynchronous_function() -> None:
    assert [reward("waits").score(item(text)).value for text in ("yes", "no")] == [1.0, 0.0]


def test_one_call_for_all_responses_of_a_prompt() -> None:
    items = [item("a"), item("a"), item("b")]
    together, single = reward("different", batch="group"), reward("different")
    assert (together.group_level, single.group_level) == (True, False)
    assert [score.value for score in together.score_group(items)] == [0.5, 0.5, 1.0]
    assert [score.value for score in single.score_group(items)] == [1.0, 1.0, 1.0]


def test_a_column_that_no_signature_names() -> None:
    assert reward("hidden_column", columns=("solution",)).score(item("x", solution="5")).value == 1.0
    with pytest.raises(KeyError, match=r'columns = \["solution"\]'):
        reward("hidden_column").score(item("x"))


def test_what_only_a_trainer_has_is_refused() -> None:
    with pytest.raises(PluginError, match="trainer_state, which only TRL's trainer provides"):
        reward("by_step")


def test_a_list_of_another_length_is_an_error() -> None:
    with pytest.raises(TypeError, match="0 values for 1 completions"):
        reward("too_few").score(item("x"))


@pytest.mark.parametrize(("name", "says"), [("nothing_here", "has no 'nothing_here'"), ("re", "must be a function")])
def test_what_is_no_function(name: str, says: str) -> None:
    with pytest.raises(PluginError, match=says):
        reward(name)


@pytest.mark.parametrize(
    ("function", "says"), [("box", "must be ./file.py:NAME"), ("./absent.py:f", "there is no file"), ("a b:f", "must be ./file.py:NAME")]
)
def test_names_that_lead_nowhere(function: str, says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        TrlOptions(function=function)


def test_a_function_that_hangs_is_ended_at_the_deadline() -> None:
    options = TrlOptions(function=f"{FUNCTIONS}:hangs")
    entry = RewardEntry(name="trl_function", spec=SPECS["trl_function"], options=options, deadline=0.5)
    with RewardMixer([entry], workers=1) as books:
        case: PendingScores = PendingScores(rewards=(0,))
        books.pool.submit(books.score_tasks(case, 0, {0: item("fine"), 1: item("hang")}))
        while case.missing:
            for result in books.pool.poll(1.0):
                (place,) = case.missing.pop(result.task.task_id)
                (case.scores[0, place],) = result.scores
    assert (case.scores[0, 0].value, case.scores[0, 0].outcome) == (1.0, Outcome.OK)
    assert (case.scores[0, 1].outcome, case.scores[0, 1].in_loss) == (Outcome.TIMEOUT, False)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("other_names", "takes answers, texts; TRL calls it by keywords, so it must also take prompts and completions"),
        ("no_prompts", "must also take prompts"),
        ("Rewarding.method", "needs self, which TRL does not pass"),
    ],
)
def test_a_function_that_trl_could_not_call_is_refused_at_once(name: str, said: str) -> None:
    with pytest.raises(PluginError, match=said):
        reward(name)


@pytest.mark.parametrize(("name", "said"), [("a_set", "returned a set for 2"), ("texts", "is the text 'nan'")])
def test_what_has_no_order_or_is_text_is_no_list_of_rewards(name: str, said: str) -> None:
    made = reward(name, batch="group")
    with pytest.raises(TypeError, match=said):
        made.score_group([item("a"), item("b")])
