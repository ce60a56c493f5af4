"""Requests of OpenAI Responses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Message
from rlcore_gateway.api_dialect import PolicyRequest
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.request_fields import NEUTRAL, function_tool, ignored_fields, refused_field, text_of, tool_call, validated

__all__ = ["parse_responses"]

_NEUTRAL = {**NEUTRAL, "tool_choice": ("auto", "none")}
del _NEUTRAL["parallel_tool_calls"]  # codex always sends false for a model that it does not know, and makes several calls one by one
_ROLES = {"user": "user", "system": "system", "developer": "system", "assistant": "assistant"}
_KINDS = {"reasoning": "assistant", "function_call": "assistant", "function_call_output": "tool"}
"""The role of items that are no messages. Reasoning that comes back is not read: the ledger has it."""


class _ResponsesBody(BaseModel):
    """The fields that count. All others are extra fields."""

    model_config = ConfigDict(extra="allow")

    input: str | list[dict[str, Any]] = ""
    instructions: str | None = None
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    stream: bool | None = None
    store: bool | None = None
    previous_response_id: str | None = None
    max_output_tokens: int | None = Field(None, ge=1)
    include: list[str] | None = None
    parallel_tool_calls: bool | None = None
    text: dict[str, Any] | None = None


def parse_responses(data: bytes) -> PolicyRequest:
    """Return the request. Raises Refusal for a body that is not one, and for a field that would change the distribution."""
    body = validated(_ResponsesBody, data, "Responses")
    fields = body.model_extra or {}
    ignored = [*ignored_fields(fields, _NEUTRAL), *_ignored_of_text(body.text or {})]
    tools = tuple(_tool(tool, f"tools.{place}") for place, tool in enumerate(body.tools or ()))
    ignored += ["strict"] * any(tool.get("strict") for tool in body.tools or ())
    ignored += ["parallel_tool_calls"] * (body.parallel_tool_calls is False)
    first = [Message(role="system", content=body.instructions)] if body.instructions else []
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    include = body.include or ()
    return PolicyRequest(
        messages=(*first, *_messages(items)),
        tools=tools,
        tool_calls=bool(tools) and fields.get("tool_choice") != "none",
        stream=bool(body.stream),
        max_tokens=body.max_output_tokens,
        ignored=tuple(ignored),
        previous=body.previous_response_id or "",
        instructions=bool(first),
        store=body.store is not False,
        logprobs="message.output_text.logprobs" in include,
        echo={
            "instructions": body.instructions,
            "max_output_tokens": body.max_output_tokens,
            "previous_response_id": body.previous_response_id,
            "store": body.store is not False,
            "tools": body.tools or [],
            "tool_choice": fields.get("tool_choice") or "auto",
            "metadata": fields.get("metadata") or {},
            "encrypted": "reasoning.encrypted_content" in include,
        },
    )


def _ignored_of_text(text: Mapping[str, Any]) -> list[str]:
    """Return the ignored names among the settings of the text. Raises Refusal for another format than plain text."""
    form = text.get("format")
    if form is not None and not (isinstance(form, Mapping) and form.get("type") == "text"):
        raise refused_field("text.format", form, [{"type": "text"}])
    return [name for name, value in text.items() if name != "format" and value is not None]


def _tool(tool: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    if tool.get("type") != "function":
        raise Refusal(f"{place} has the type {tool.get('type')!r:.60}; send functions, because no built-in tool is offered", param=place)
    return function_tool(tool, place)


def _messages(items: Sequence[Mapping[str, Any]]) -> list[Message]:
    """Return the messages of the items. The items of one answer are one message: reasoning, then a text, then calls of tools."""
    found: list[Message] = []
    before = ""  # the kind of the item before, if it belongs to an answer
    for number, item in enumerate(items):
        place = f"input.{number}"
        kind = item.get("type") or "message"
        role = _role(item, kind, place)
        if role != "assistant":
            field, answered = ("output", item.get("call_id")) if role == "tool" else ("content", None)
            content = text_of(item.get(field), place)
            found.append(Message(role=role, content=content, tool_call_id=answered if isinstance(answered, str) else ""))
            before = ""
            continue
        if not before or (kind != "function_call" and before != "reasoning"):
            found.append(Message(role="assistant", content=""))
        if kind == "message":
            found[-1] = replace(found[-1], content=text_of(item.get("content"), place))
        elif kind == "function_call":
            call = tool_call(item.get("call_id"), item.get("name"), item.get("arguments"), place)
            found[-1] = replace(found[-1], tool_calls=(*found[-1].tool_calls, call))
        before = kind
    if not found:
        raise Refusal("the input is empty; send at least one item", param="input")
    return found


def _role(item: Mapping[str, Any], kind: Any, place: str) -> str:
    named = item.get("role") if kind == "message" else kind
    if not isinstance(named, str) or named not in (_ROLES if kind == "message" else _KINDS):
        raise Refusal(f"{place}: {kind!r:.60} of {named!r:.60} is not offered; send messages, calls and outputs", param=place)
    return {**_ROLES, **_KINDS}[named]
