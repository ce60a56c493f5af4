"""Agents of other frameworks, unmodified, in environments of their own, with a scripted engine: what trains is what the engine sampled."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from rlcore_gateway.gateway import Ask
from rlcore_gateway.ledger import EpisodeLedger, EpisodeLimits
from rlcore_gateway.pool import WorkerPool
from rlcore_gateway.trained import LedgerResult
from rlcore_gateway.worker_process import WorkerCommand
from stub_engine import StubEngine, pieces, real_tokenizer, serving

from rlcore.api import Segment
from tests.agent_environments import agent_environment, agent_program

ROW = {"messages": [{"role": "user", "content": "what is 12*34+1"}], "gt_answer": "409"}
STEPS = [{"expression": "12*34"}, {"expression": "408+1"}]
"""What the policy asks the calculator."""


def call(name: str, **arguments: str) -> str:
    return f"<tool_call>{json.dumps({'name': name, 'arguments': arguments})}</tool_call>"


CALLS = [f"<think>Step {number}.</think>I calculate.\n{call('calculator', **step)}" for number, step in enumerate(STEPS, 1)]
CODE = [f'I calculate.\n<code>\nprint(calculator("{step["expression"]}"))\n</code>' for step in STEPS]
ANSWERS = {
    "": [*CALLS, "<think>I have it.</think>409"],
    "tools": [*CALLS, call("final_answer", answer="409")],
    "code": [*CODE, 'I have it.\n<code>\nfinal_answer("409")\n</code>'],
}
"""What the policy says, by the first argument of the program; "" for the others."""


def heavy(framework: str, *words: str) -> Any:
    return pytest.param(framework, words, marks=pytest.mark.nightly, id=" ".join((framework, *words)))


def light(framework: str, *words: str) -> Any:
    return pytest.param(framework, words, marks=pytest.mark.full, id=" ".join((framework, *words)))


DIALECTS = [(dialect, *stream) for dialect in ("chat", "responses", "messages") for stream in ((), ("stream",))]
FORMS = [
    light("openai_agents", "responses"),
    light("openai_agents", "chat", "stream"),
    heavy("openai_agents", "responses", "stream"),
    heavy("openai_agents", "chat"),
    heavy("openai_agents", "stored"),
    heavy("openai_agents", "stored", "stream"),
    *(heavy(framework, *words) for framework in ("pydantic_ai", "inspect_ai") for words in DIALECTS),
    *(heavy("smolagents", form, *stream) for form in ("tools", "code") for stream in ((), ("stream",))),
]


def scripted(answers: list[str]) -> Callable[[Ask], list[int]]:
    left = iter(answers)
    return lambda ask: pieces(next(left))


async def played(
    framework: str, words: tuple[str, ...], answers: list[str], reward: float = 1.0
) -> tuple[EpisodeLedger, LedgerResult, StubEngine]:
    """Let the agent play an episode, which must have this reward. Return what trains, too."""
    argv = (str(agent_environment(framework) / "bin" / "python"), "-u", str(agent_program(framework)), *words)
    async with serving(real_tokenizer(), scripted(answers), limits=EpisodeLimits(tokens=10_000, context=100_000)) as served:
        pool = WorkerPool(WorkerCommand(argv=argv, env={"PYTHONPATH": ""}), workers=1, called=lambda episode: True, say=print)
        line = {"row": ROW, "base_url": served.base_url, "key": served.key, "model": "policy"}
        end = await pool.play("game", line, 300.0)
        await pool.close()
        assert (end.outcome, end.reward) == ("ok", reward), end
        assert len(served.engine.asked) == len(answers)
        ledger = served.gateway.close(served.key)
        return ledger, ledger.trained(end.calls), served.engine


def sampled(segment: Segment) -> list[tuple[int, float]]:
    mask = segment.policy_mask
    return list(zip(segment.token_ids[mask].tolist(), segment.logprobs[mask].tolist(), strict=True))


@pytest.mark.parametrize(("framework", "words"), FORMS)
def test_an_agent_trains_the_tokens_of_the_engine_each_once(framework: str, words: tuple[str, ...]) -> None:
    ledger, result, engine = asyncio.run(played(framework, words, ANSWERS.get(words[0], ANSWERS[""])))
    rewrites = framework == "smolagents"  # it sends its calls back as text
    assert (len(ledger.roots), len(result.segments)) == ((3, 3) if rewrites else (1, 1))
    said = [engine.answered[ask.call] for ask in engine.asked]
    expected = [pair for one in said for pair in zip(one.token_ids.tolist(), one.logprobs.tolist(), strict=True)]
    assert sorted(pair for segment in result.segments for pair in sampled(segment)) == sorted(expected)
    assert result.counts["untrained_tokens"] == 0
    whole = [[*segment.context_ids.tolist(), *segment.token_ids.tolist()] for segment in result.segments]
    for ask, answer in zip(engine.asked, said, strict=True):
        read = [*ask.context_ids.tolist(), *answer.token_ids.tolist()]
        assert any(line[: len(read)] == read for line in whole), "the engine answered another context than the one that trains"


@pytest.mark.parametrize(
    ("framework", "words", "times", "reward"),
    [
        pytest.param("openai_agents", "chat", 1, 0.0, id="openai-agents raises"),
        pytest.param("pydantic_ai", "chat", 1, 1.0, id="pydantic-ai tells it"),
        pytest.param("pydantic_ai", "chat", 2, 0.0, id="pydantic-ai raises the second time"),
        pytest.param("inspect_ai", "chat", 3, 1.0, id="inspect-ai tells it"),
        pytest.param("smolagents", "tools", 3, 1.0, id="smolagents tells it"),
    ],
)
@pytest.mark.nightly
def test_a_tool_that_does_not_exist_is_the_fault_of_the_policy(framework: str, words: str, times: int, reward: float) -> None:
    answers = [call("nothing", x="1")] * times + ANSWERS.get(words, ANSWERS[""])[-1:] * int(reward)
    _, result, _ = asyncio.run(played(framework, (words,), answers, reward))
    assert result.counts["untrained_tokens"] == 0
