"""The page of a ledger."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx2
from rlcore_gateway.ledger_page import add_ledger_page
from stub_engine import pieces, real_tokenizer, serving

ADD: Any = {"type": "function", "function": {"name": "add", "parameters": {}}}


def test_the_page_shows_chats_forks_tools_and_what_trains() -> None:
    async def run() -> None:
        tokenizer = real_tokenizer()
        said = 'I <b>add</b>.<tool_call>{"name": "add", "arguments": {"a": "<i>"}}</tool_call>'
        async with serving(tokenizer, lambda ask: pieces(said)) as served, httpx2.AsyncClient() as plain:
            add_ledger_page(served.gateway, tokenizer)
            root = served.base_url.removesuffix("/v1")
            assert "No call has been answered yet" in (await plain.get(f"{root}/?key={served.key}")).text
            create = served.client.chat.completions.create
            await create(model="m", messages=[{"role": "user", "content": "a <script>title</script>"}], max_tokens=3)
            messages: list[Any] = [{"role": "user", "content": "guess"}]
            answer = await create(model="m", messages=messages, tools=[ADD])
            call = answer.choices[0].message.tool_calls[0]
            messages.append(answer.choices[0].message.model_dump(exclude_none=True))
            for result in ("5", "6"):
                await create(model="m", messages=[*messages, {"role": "tool", "tool_call_id": call.id, "content": result}], tools=[ADD])
            white = served.connect(served.gateway.add_player(served.key, "white"))
            await white.chat.completions.create(model="m", messages=[{"role": "user", "content": "guess"}])
            served.engine.gate = asyncio.Event()
            waiting = asyncio.ensure_future(create(model="m", messages=messages))
            while len(served.engine.asked) < 6:
                await asyncio.sleep(0.01)
            found = await plain.get(f"{root}/?key={served.key}")
            text = found.text
            assert "default-src 'none'" in found.headers["content-security-policy"]
            assert "<script>" not in text
            assert "a &lt;script&gt;title&lt;/script&gt;" in text
            assert text.count('<section class="chat">') == 3
            assert text.count('<section class="fork">') == 1
            assert f"chat {served.engine.asked[4].call} of white" in text
            assert text.count('<div class="answer untrained"') == 1  # the title
            assert text.count('<div class="answer"') == 4
            assert text.count("<summary>calls add</summary>") == 3
            assert text.count("<summary>result</summary>") == 2
            assert text.count('<span style="--s:') == 4 * len(pieces(said)) + 3
            assert f"Waiting for an answer: {served.engine.asked[5].call}" in text
            assert (await plain.get(f"{root}/")).status_code == 401
            served.engine.gate.set()
            await waiting
            served.gateway.close(served.key)
            assert (await plain.get(f"{root}/?key={served.key}")).status_code == 401

    asyncio.run(run())
