"""Requests of Chat Completions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Message
from rlcore_gateway.api_dialect import PolicyRequest
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.request_fields import NEUTRAL, function_tool, ignored_fields, text_of, tool_call, validated

__all__ = ["parse_chat"]

_NEUTRAL = {**NEUTRAL, "response_format": ({"type": "text"},), "tool_choice": ("auto", "none")}


class _ChatBody(BaseModel):
    """The fields that count. All others are extra fields."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]] = Field(min_length=1)
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    stop: str | list[str] | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    logprobs: bool | None = None
    return_token_ids: bool | None = None


def parse_chat(data: bytes) -> PolicyRequest:
    """Return the request. Raises Refusal for a body that is not one, and for a field that would change the distribution."""
    body = validated(_ChatBody, data, "Chat Completions")
    fields = body.model_extra or {}
    ignored = ignored_fields(fields, _NEUTRAL)
    tools = tuple(_tool(tool, place) for place, tool in enumerate(body.tools or ()))
    limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None]
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    strict = any(tool["function"].get("strict") for tool in body.tools or ())  # clients set it by default
    return PolicyRequest(
        messages=tuple(_message(message, f"messages.{place}") for place, message in enumerate(body.messages)),
        tools=tools,
        tool_calls=bool(tools) and fields.get("tool_choice") != "none",
        stream=bool(body.stream),
        stop=tuple(text for text in stop if text),
        max_tokens=min(limits, default=None),
        ignored=(*ignored, *["strict"] * strict),
        include_usage=bool((body.stream_options or {}).get("include_usage")),
        logprobs=bool(body.logprobs),
        return_token_ids=bool(body.return_token_ids),
    )


def _tool(tool: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Refusal(
            f'tools.{place} is not a function; send {{"type": "function", "function": {{"name": ..., "parameters": ...}}}}',
            param=f"tools.{place}",
        )
    return function_tool(function, f"tools.{place}")


def _message(message: Mapping[str, Any], place: str) -> Message:
    role = "system" if message.get("role") == "developer" else message.get("role")
    if not isinstance(role, str) or role not in ("system", "user", "assistant", "tool"):
        raise Refusal(f"{place}: role {role!r} is unknown; use system, user, assistant or tool", param=f"{place}.role")
    name, answered = message.get("name"), message.get("tool_call_id")
    return Message(
        role=role,
        content=text_of(message.get("content"), place),
        tool_calls=_tool_calls(message.get("tool_calls"), place) if role == "assistant" else (),
        tool_call_id=answered if role == "tool" and isinstance(answered, str) else "",
        name=name if isinstance(name, str) else "",
    )


def _tool_calls(calls: Any, place: str) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(calls, list | None):
        raise Refusal(f"{place}: tool_calls is not a list", param=f"{place}.tool_calls")
    found = []
    for call in calls or ():
        given = call if isinstance(call, Mapping) else {}
        function = given.get("function")
        function = function if isinstance(function, Mapping) else {}
        found.append(tool_call(given.get("id"), function.get("name"), function.get("arguments"), place))
    return tuple(found)
