"""The same tool loop through the SDKs of OpenAI and Anthropic gives the same ledger."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import numpy as np
import pytest
from rlcore_gateway.gateway import Ask
from rlcore_gateway.ledger import EpisodeLedger
from rlcore_gateway.trained import LedgerResult
from sdk_loops import LOOPS, SYSTEM, TASK
from stub_engine import StubEngine, pieces, real_tokenizer, serving

TURNS = 6


def calculating(engine: list[Ask]) -> Any:
    """A policy that thinks, says something, and calls the calculator five times; then it answers."""

    def script(ask: Ask) -> list[int]:
        engine.append(ask)
        turn = len(engine)
        if turn == TURNS:
            return pieces("<think>I have it.</think>It is 21.")
        call = json.dumps({"name": "calculator", "arguments": {"a": turn * (turn + 1) // 2, "b": turn + 1}})
        text = "" if turn == 2 else "I add.\n"
        return pieces(f"<think>Step {turn}.</think>{text}<tool_call>{call}</tool_call>")

    return script


async def played(name: str, stream: bool) -> tuple[EpisodeLedger, LedgerResult, StubEngine, list[str]]:
    async with serving(real_tokenizer(), calculating([])) as served:
        ids = await LOOPS[name](served.base_url, served.key, stream)
        ledger = served.gateway.close(served.key)
        return ledger, ledger.trained(), served.engine, ids


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streamed"])
@pytest.mark.parametrize("name", LOOPS)
def test_a_tool_loop_gives_the_same_ledger_in_every_dialect(name: str, stream: bool) -> None:
    async def run() -> None:
        _, expected, reference, _ = await played("chat", stream=False)
        ledger, result, engine, ids = await played(name, stream)
        (segment,), (wanted,) = result.segments, expected.segments
        for field in ("context_ids", "token_ids", "logprobs", "versions", "policy_mask"):
            np.testing.assert_array_equal(getattr(segment, field), getattr(wanted, field), field)
        assert result.calls == tuple(ids)
        assert len(ids) == TURNS
        assert (result.calls, result.turn_lengths, result.messages) == (expected.calls, expected.turn_lengths, expected.messages)
        assert [ask.noise for ask in engine.asked] == [ask.noise for ask in reference.asked]
        assert len(ledger.roots) == 1
        told = {"refusals": 1.0} if name == "runner" else {}
        assert {count: value for count, value in result.counts.items() if count != "ignored_strict"} == {**expected.counts, **told}

    asyncio.run(run())


def test_the_loop_is_what_it_seems() -> None:
    """The ledger that the others are compared with has the thinking, the calls and the results of the calculator."""

    async def run() -> None:
        _, result, _, _ = await played("chat", stream=False)
        (segment,) = result.segments
        text = real_tokenizer()._inner.decode([*segment.context_ids, *segment.token_ids])
        assert SYSTEM in text
        assert TASK in text
        assert text.count("<think>") == TURNS
        assert text.count("</tool_call>") == TURNS - 1
        assert [message.content for message in result.messages if message.role == "tool"] == ["3", "6", "10", "15", "21"]
        assert segment.policy_mask.sum() == sum(result.turn_lengths)

    asyncio.run(run())
