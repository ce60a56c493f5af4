"""Rewards grade an episode in their worker processes: the last answer, the tool calls of each message, and the turns one by one."""

from __future__ import annotations

from dataclasses import replace

import cloudpickle
from rlcore_plugin_math import BOXED
from rlcore_plugin_math.options import BoxedOptions

from rlcore.api import FinishReason, Message, Outcome, Prompt, RewardInput, RewardSpec, Rollout, Score
from rlcore.contracts.reward_interface import Reward
from rlcore.rewards.judge import Judge
from rlcore.rewards.reward_entry import RewardEntry
from rlcore.testing import make_rollout

ADD = {"id": "call_1", "type": "function", "function": {"name": "add", "arguments": {"a": 17, "b": [23]}}}
WRONG = {"type": "function", "function": {"name": "multiply", "arguments": "not JSON"}}
PROMPT = Prompt(prompt_id="p", index=0, messages=(Message(role="user", content="17 + 23?"),), columns={"gt_answer": "40"})


def episode(answer: str, *calls: object) -> Rollout:
    turns = (
        Message(role="assistant", content="", policy=True, tool_calls=tuple(calls)),  # type: ignore[arg-type]
        Message(role="tool", content="40", tool_call_id="call_1", name="add"),
        Message(role="assistant", content=f"<sum>40</sum>{answer}", policy=True, inserted=((5, 7),)),
    )
    made = make_rollout([1], [2, 3, 4], text=answer)
    return Rollout(
        prompt_id="p",
        index=0,
        segments=made.segments,
        text=turns[-1].content,
        finish=FinishReason.STOP,
        turns=turns,
        turn_lengths=(1, 2),
        turn_rewards=(0.25, 0.75),
        extra={"calls": len(calls)},
    )


def calls_the_tool() -> type[Reward]:
    """Made inside a function, so that it travels to the worker by value."""

    class CallsTheTool(Reward):
        def score(self, item: RewardInput) -> Score:
            calls = [call for message in item.turns if message.policy for call in message.tool_calls]
            right = [call["function"]["name"] == "add" and call["function"]["arguments"]["b"] == [23] for call in calls]
            results = [message.content for message in item.turns if message.role == "tool" and message.tool_call_id == "call_1"]
            told = {
                "calls": len(calls),
                "extra": item.extra["calls"],
                "results": results.count("40"),
                "inserted": item.turns[-1].inserted[0][1],
            }
            return Score(value=float(any(right)), parts=told, turn_rewards=tuple(2 * value for value in item.turn_rewards))

    return CallsTheTool


def entries() -> list[RewardEntry]:
    spec = RewardSpec(name="calls", target="unpackaged:calls", summary="the tool is called")
    boxed = RewardEntry(name="boxed", spec=BOXED, options=BoxedOptions(), weight=2.0)
    return [boxed, RewardEntry(name="calls", spec=spec, payload=cloudpickle.dumps(calls_the_tool()), weight=0.5)]


def test_a_math_reward_and_one_that_reads_tool_calls_grade_the_same_episodes() -> None:
    rollouts = [episode("\\boxed{40}", ADD), episode("\\boxed{41}", ADD), episode("\\boxed{40}", WRONG), episode("\\boxed{40}")]
    with Judge(entries(), workers=2) as judge:
        judge.submit(1, PROMPT, rollouts)
        ((_, scores),) = judge.poll(60.0)
    right = scores[0].parts["boxed"]
    assert right > 0
    assert [score.parts["boxed"] == right for score in scores] == [True, False, True, True]
    assert [score.parts["calls"] for score in scores] == [0.5, 0.5, 0.0, 0.0]
    assert [score.accuracy for score in scores] == [1.0, 0.0, 1.0, 1.0]
    assert scores[0].turn_rewards == (0.25, 0.75)  # twice those of the episode, weighted by a half
    told = {name.removeprefix("calls/"): value for name, value in scores[0].parts.items() if name.startswith("calls/")}
    assert told == {"calls": 1, "extra": 1, "results": 1, "inserted": 7}
    assert {score.outcome for score in scores} == {Outcome.OK, Outcome.WRONG}


def test_the_last_answer_counts_and_an_episode_that_ends_in_a_call_has_none() -> None:
    silent = episode("\\boxed{40}", ADD)
    last = Message(role="assistant", content="", policy=True, tool_calls=(ADD,))
    silent = replace(silent, text="", turns=(*silent.turns, last), turn_lengths=(), turn_rewards=())
    with Judge(entries()[:1], workers=1) as judge:
        judge.submit(1, PROMPT, [silent])
        ((_, (score,)),) = judge.poll(60.0)
    assert (score.accuracy, score.outcome.judged) == (0.0, True)
