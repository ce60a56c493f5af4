"""Rewritten histories, forks, and thinking that a chat template drops: as it was sampled, or as the template has it."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from rlcore_gateway.gateway import Ask, GatewaySettings
from rlcore_gateway.trained import LedgerResult
from stub_engine import Served, pieces, real_tokenizer, serving

from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def said(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def thinking(ask: Ask) -> list[int]:
    return pieces("<think>deep</think>guess")


async def thinking_game(served: Served, echo: str, turns: int = 3) -> LedgerResult:
    """A client that sends ``echo`` back for each answer."""
    messages = [user("u")]
    for _ in range(turns):
        answer = (await served.client.chat.completions.create(model="m", messages=messages)).choices[0].message
        assert (answer.content, (answer.model_extra or {})["reasoning_content"]) == ("guess", "deep")
        messages += [{**said(echo), "name": "player"}, user("u")]
    return served.gateway.close(served.key).trained()


def texts(result: LedgerResult) -> list[str]:
    return [real_tokenizer()._inner.decode([*one.context_ids, *one.token_ids]) for one in result.segments]


TURN = "<|im_start|>user\nu<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("echo", ["guess", " guess\n", "<think>deep</think>guess", "<think>other</think>\n\nguess"])
def test_as_sampled_the_thinking_stays_whatever_the_client_sends_back(echo: str) -> None:
    async def run() -> None:
        async with serving(real_tokenizer(), thinking) as served:
            result = await thinking_game(served, echo)
            assert texts(result) == [f"{TURN}<think>deep</think>guess<|im_end|>\n" * 2 + f"{TURN}<think>deep</think>guess<|im_end|>"]
            assert result.counts["forks"] == 0
            assert len(result.turn_lengths) == 3

    asyncio.run(run())


def test_by_template_the_thinking_goes_and_each_turn_is_a_fork() -> None:
    async def run() -> None:
        async with serving(real_tokenizer(), thinking, settings=GatewaySettings(history="template")) as served:
            result = await thinking_game(served, "guess")
            short, whole = f"{TURN}guess<|im_end|>\n", f"{TURN}<think>deep</think>guess<|im_end|>"
            assert texts(result) == [whole, short + whole, short * 2 + whole]
            assert result.counts["forks"] == 2
            for segment, ask in zip(result.segments, served.engine.asked, strict=True):
                np.testing.assert_array_equal(segment.context_ids, ask.context_ids)
                assert segment.token_ids[segment.policy_mask].tolist() == thinking(ask)
            answers = [message.policy for message in result.messages if message.role == "assistant"]
            assert answers == [True, *(False, True), *(False, False, True)]

    asyncio.run(run())


def test_by_template_a_history_that_the_template_keeps_continues() -> None:
    """In a loop of tools this template keeps the thinking, as that of Qwen3 does, and the tokens are read back as they were sampled."""
    inner = real_tokenizer()._inner

    async def run() -> None:
        script = inner.encode("<think>deep</think>guess<|im_end|>", add_special_tokens=False)
        async with serving(real_tokenizer(), lambda ask: script, settings=GatewaySettings(history="template")) as served:
            messages: list[Any] = [user("u")]
            for _ in range(3):
                await served.client.chat.completions.create(model="m", messages=messages)
                messages += [said("guess"), {"role": "tool", "tool_call_id": "x", "content": "t"}]
            result = served.gateway.close(served.key).trained()
            (segment,) = result.segments
            assert segment.token_ids[segment.policy_mask].tolist() == script * 3
            assert result.counts["forks"] == 0

    asyncio.run(run())


def number(ask: Ask) -> list[int]:
    return [*FAKE.encode(str(len(ask.context_ids))), 0]


def test_a_rewritten_history_is_a_new_root_and_both_train() -> None:
    async def run() -> None:
        async with serving(FAKE, number) as served:
            create = served.client.chat.completions.create
            first = await create(model="m", messages=[user("guess")])
            await create(model="m", messages=[user("guess"), said("something else"), user("higher")])
            ledger = served.gateway.close(served.key)
            result = ledger.trained()
            assert len(ledger.roots) == 2
            assert result.calls[0] == first.id
            assert len(result.segments) == 2
            rendered = served.engine.asked[1].context_ids
            np.testing.assert_array_equal(result.segments[1].context_ids, rendered)

    asyncio.run(run())


def test_two_continuations_of_one_answer_share_their_context() -> None:
    async def run() -> None:
        async with serving(FAKE, number) as served:
            create = served.client.chat.completions.create
            answer = (await create(model="m", messages=[user("guess")])).choices[0].message.content or ""
            for text in ("higher", "lower"):
                await create(model="m", messages=[user("guess"), said(answer), user(text)])
            result = served.gateway.close(served.key).trained()
            first, fork = result.segments
            said_last = [message.content for message in result.messages]
            second = served.engine.asked[1 if said_last[4] == "higher" else 2]  # which of them shares a segment depends on no order
            np.testing.assert_array_equal(fork.context_ids, second.context_ids)
            assert first.policy_mask.sum() == 5
            assert fork.policy_mask.all()
            assert result.counts["forks"] == 1
            assert said_last[:2] == ["guess", answer]
            assert sorted([said_last[2:4], said_last[4:]]) == [["higher", "17"], ["lower", "16"]]
            assert result.text == "16"  # the last answer, in whichever segment it is

    asyncio.run(run())


def test_a_root_that_asks_for_something_else_does_not_train() -> None:
    async def run() -> None:
        async with serving(FAKE, number) as served:
            create = served.client.chat.completions.create
            title = await create(model="m", messages=[{"role": "system", "content": "title"}, user("a title for guess")])
            first = await create(model="m", messages=[user("guess")])
            answer = first.choices[0].message.content or ""
            second = await create(model="m", messages=[user("guess"), said(answer), user("higher")])
            ledger = served.gateway.close(served.key)
            assert ledger.trained().calls == (first.id, second.id)
            assert ledger.trained().counts["untrained_tokens"] == 3
            assert ledger.trained([title.id]).calls == (title.id,)
            named = ledger.trained([second.id])
            assert len(named.segments[0].context_ids) == len(served.engine.asked[2].context_ids)  # the first answer is context

    asyncio.run(run())


def test_other_tools_begin_a_new_chat() -> None:
    tool = {"type": "function", "function": {"name": "add", "parameters": {}}}

    async def run() -> None:
        async with serving(FAKE, number) as served:
            create = served.client.chat.completions.create
            answer = (await create(model="m", messages=[user("guess")])).choices[0].message.content or ""
            await create(model="m", messages=[user("guess"), said(answer), user("higher")], tools=[tool])
            assert len(served.gateway.close(served.key).roots) == 2

    asyncio.run(run())


def test_chats_that_differ_only_in_thinking_or_spaces_are_rendered_apart() -> None:
    """A rendered chat is remembered for other episodes by its exact text, not by its canonical form."""

    async def run() -> None:
        async with serving(real_tokenizer(), thinking) as served:
            for before in ("a", " a", "<think>x</think>a"):
                messages: Any = [user("u"), said(before), {"role": "tool", "tool_call_id": "x", "content": "t"}]
                for _ in range(2):
                    await served.client.chat.completions.create(model="m", messages=messages)
            found = [real_tokenizer()._inner.decode(ask.context_ids) for ask in served.engine.asked]
            assert [text.partition("assistant\n")[2].partition("<|im_end|>")[0] for text in found[::2]] == ["a", " a", "<think>x</think>a"]
            assert found[::2] == found[1::2]

    asyncio.run(run())


@pytest.mark.parametrize("history", ["as_sampled", "template"])
def test_a_request_by_id_continues_that_answer_and_not_an_equal_one(history: Any) -> None:
    """The texts of two answers are equal, and their thinking is not."""

    async def run() -> None:
        answers = iter(["<think>plan A</think>yes", "<think>plan B</think>yes", *"abcdef"])
        settings = GatewaySettings(history=history)
        async with serving(real_tokenizer(), lambda ask: pieces(next(answers)), settings=settings) as served:
            create = served.client.responses.create
            first, second = [await create(model="m", input="q") for _ in range(2)]
            more = [await create(model="m", input="more", previous_response_id=one.id) for one in (second, second, first, second)]
            assert len({one.id for one in more}) == 4
            calls = {call.id: call for call in served.gateway.ledger(served.key).calls}
            if history == "as_sampled":
                asked = [real_tokenizer()._inner.decode(ask.context_ids) for ask in served.engine.asked[2:]]
                assert ["A" if "plan A" in text else "B" for text in asked] == ["B", "B", "A", "B"]
                assert [call.parent for call in list(calls.values())[2:]] == [calls[one.id] for one in (second, second, first, second)]
            repeated = await create(model="m", input="more", previous_response_id=first.id, extra_headers={"x-stainless-retry-count": "1"})
            assert repeated.id == more[2].id

    asyncio.run(run())
