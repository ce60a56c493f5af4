"""Requests of Anthropic Messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Message
from rlcore_gateway.api_dialect import PolicyRequest
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.request_fields import NEUTRAL, function_tool, ignored_fields, refused_field, text_of, tool_call, validated

__all__ = ["NO_THREADS", "parse_messages"]

NO_THREADS = "thread_unsupported_request"
"""The code by which the SDK learns that a server keeps no threads."""
_THINKING = ("thinking", "redacted_thinking")


class _MessagesBody(BaseModel):
    """The fields that count. All others are extra fields."""

    model_config = ConfigDict(extra="allow")

    messages: list[dict[str, Any]] = Field(min_length=1)
    system: str | list[dict[str, Any]] | None = None
    model: str | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    stream: bool | None = None
    stop_sequences: list[str] | None = None
    max_tokens: int | None = Field(None, ge=1)
    output_config: dict[str, Any] | None = None
    thread: dict[str, Any] | None = None


def parse_messages(data: bytes) -> PolicyRequest:
    """Return the request. Raises Refusal for a body that is not one, and for a field that would change the distribution."""
    body = validated(_MessagesBody, data, "Messages")
    ignored = ignored_fields(body.model_extra or {}, NEUTRAL)
    if body.thread is not None:  # the SDK's own loop asks for one, and sends the whole chat after this refusal
        raise Refusal("the gateway keeps no threads; send the whole chat, without thread", code=NO_THREADS, param="thread")
    config = {name: value for name, value in (body.output_config or {}).items() if value is not None}
    if "format" in config:
        raise refused_field("output_config.format", config["format"])
    tools = tuple(_tool(tool, f"tools.{place}") for place, tool in enumerate(body.tools or ()))
    first = [Message(role="system", content=text_of(body.system, "system"))] if body.system else []
    if body.messages[-1].get("role") == "assistant":
        raise Refusal("the last message is the assistant's, which the gateway cannot continue; end with the user's", param="messages")
    return PolicyRequest(
        messages=(*first, *(one for place, said in enumerate(body.messages) for one in _messages(said, f"messages.{place}"))),
        tools=tools,
        tool_calls=_chooses(body.tool_choice or {}) and bool(tools),
        stream=bool(body.stream),
        stop=tuple(text for text in body.stop_sequences or () if text),
        max_tokens=body.max_tokens,
        ignored=(*ignored, *config),
        instructions=bool(first),
    )


def _chooses(choice: Mapping[str, Any]) -> bool:
    """Return whether the policy may call tools. Raises Refusal if it must, or if it may call only one."""
    if choice.get("type", "auto") not in ("auto", "none") or choice.get("disable_parallel_tool_use"):
        raise refused_field("tool_choice", choice, [{"type": "auto"}, {"type": "none"}])
    return choice.get("type") != "none"


def _tool(tool: Mapping[str, Any], place: str) -> Mapping[str, Any]:
    if tool.get("type") not in (None, "custom"):
        raise Refusal(
            f"{place} has the type {tool.get('type')!r:.60}; send your own tools, because no built-in one is offered", param=place
        )
    return function_tool(tool, place, parameters="input_schema")


def _messages(said: Mapping[str, Any], place: str) -> Iterator[Message]:
    """Yield the messages of one message: the results of tools are messages of their own in the chat template."""
    role, content = said.get("role"), said.get("content")
    if role not in ("user", "assistant", "system"):
        raise Refusal(f"{place}: role {role!r:.60} is unknown; use user or assistant", param=f"{place}.role")
    if not isinstance(content, list):
        yield Message(role=role, content=text_of(content, place))
    elif role == "assistant":
        yield _answer(content, place)
    else:
        yield from _of_user(role, content, place)


def _answer(blocks: Sequence[Any], place: str) -> Message:
    """Return an answer that comes back. Its thinking is not read: the ledger has it."""
    calls, texts = [], []
    for block in blocks:
        kind = block.get("type") if isinstance(block, Mapping) else None
        if kind == "tool_use":
            calls.append(tool_call(block.get("id"), block.get("name"), block.get("input"), place))
        elif kind not in _THINKING:
            texts.append(block)
    return Message(role="assistant", content=text_of(texts, place), tool_calls=tuple(calls))


def _of_user(role: str, blocks: Sequence[Any], place: str) -> Iterator[Message]:
    texts: list[Any] = []
    results = False
    for block in blocks:
        if not (isinstance(block, Mapping) and block.get("type") == "tool_result"):
            texts.append(block)
            continue
        if texts:
            yield Message(role=role, content=text_of(texts, place))
        texts, results, answered = [], True, block.get("tool_use_id")
        yield Message(role="tool", content=text_of(block.get("content"), place), tool_call_id=answered if isinstance(answered, str) else "")
    if texts or not results:
        yield Message(role=role, content=text_of(texts, place))
