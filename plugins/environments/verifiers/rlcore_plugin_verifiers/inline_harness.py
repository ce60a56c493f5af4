"""A harness of verifiers that runs in the process of the environment: a chat with tools, and no process for a turn or an episode."""

from __future__ import annotations

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import verifiers.v1 as vf
from openai import APIStatusError, AsyncOpenAI
from verifiers.v1.dialects.chat import message_to_wire
from verifiers.v1.harnesses.utils.mcp import call_mcp, connect_mcp

__all__ = ["CALLS", "InlineHarness", "InlineHarnessConfig"]

CALLS = "rlcore_calls"
"""The key in ``Trace.info`` of the ids of the calls of a trace."""
_USED_UP = ("budget_exhausted", "context_length_exceeded")  # codes of the gateway


class InlineHarnessConfig(vf.HarnessConfig):
    pass


class InlineHarness(vf.Harness[InlineHarnessConfig]):
    """Talks until an answer has no tool call. A budget that is used up ends the chat, which is then graded as it is."""

    APPENDS_SYSTEM_PROMPT = True
    SUPPORTS_MCP = True
    SUPPORTS_RESUME = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(
        self,
        ctx: vf.ModelContext,
        trace: vf.Trace,
        runtime: vf.Runtime,
        endpoint: str,
        secret: str,
        mcp_urls: dict[str, str],
        data: vf.TaskData,
    ) -> vf.ProgramResult:
        """See vf.Harness."""
        system, prompt = self.resolve_prompt(data)
        messages: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
        if isinstance(prompt, str):
            messages.append({"role": "user", "content": prompt})
        else:
            messages += [message_to_wire(message) for message in prompt or []]
        servers = {name: {"url": url, "timeout": self.config.tool_timeout} for name, url in mcp_urls.items()}
        async with AsyncExitStack() as closing:
            http = httpx.AsyncClient(timeout=None, trust_env=False, verify=False)  # the server is in this process
            client = AsyncOpenAI(base_url=endpoint, api_key=secret, max_retries=0, http_client=http)
            await closing.enter_async_context(client)
            tools = await connect_mcp({"mcpServers": servers}, closing)
            await self._talk(client, ctx.model, trace, messages, *tools)
        return vf.ProgramResult(exit_code=0, stdout="", stderr="")

    async def _talk(
        self,
        client: AsyncOpenAI,
        model: str,
        trace: vf.Trace,
        messages: list[dict[str, Any]],
        schemas: list[dict[str, Any]],
        dispatch: dict[str, tuple[str, str]],
        servers: dict[str, Any],
    ) -> None:
        tools = [one for one in schemas if one["function"]["name"] not in (self.config.disabled_tools or ())]
        offered: dict[str, Any] = {"tools": tools} if tools else {}
        while True:
            try:
                answer = await client.chat.completions.create(model=model, messages=messages, **offered)  # type: ignore[arg-type]
            except APIStatusError as error:
                if trace.stop_condition is not None or any(code in str(error) for code in _USED_UP):
                    return
                raise
            trace.info.setdefault(CALLS, []).append(answer.id)
            said = answer.choices[0].message
            messages.append(said.model_dump(exclude_none=True))
            if not said.tool_calls:
                return
            for call in said.tool_calls:
                content = await _called(call.function.name, call.function.arguments, dispatch, servers)  # type: ignore[union-attr]
                messages.append({"role": "tool", "tool_call_id": call.id, "content": content})


async def _called(name: str, arguments: str, dispatch: dict[str, tuple[str, str]], servers: dict[str, Any]) -> Any:
    """Return the result of a tool, or what was wrong with the call, for the policy."""
    if name not in dispatch:
        return f"error: unknown tool {name!r}"
    try:
        values = json.loads(arguments or "{}")
    except json.JSONDecodeError as error:
        return f"error: the arguments are not JSON ({error})"
    if not isinstance(values, dict):
        return "error: the arguments are not a JSON object"
    return await call_mcp(servers, dispatch, name, values)
