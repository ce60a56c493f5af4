"""Requests of Chat Completions: which fields count, which are ignored, and which are refused because they would change the distribution."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rlcore.api import Message
from rlcore_gateway.refusal import Refusal

__all__ = ["ChatRequest", "parse_chat"]

_HARMLESS = frozenset(
    {
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"),
        *("return_tokens_as_token_ids", "include_usage", "caching", "cache_control"),
    }
)
"""Fields that change nothing about the answer."""
_ONLY: Mapping[str, tuple[Any, ...]] = {
    "n": (1,),
    "best_of": (1,),
    "logit_bias": ({},),
    "response_format": ({"type": "text"},),
    "frequency_penalty": (0,),
    "presence_penalty": (0,),
    "repetition_penalty": (1,),
    "length_penalty": (1,),
    "top_logprobs": (0,),
    "parallel_tool_calls": (True,),
    "modalities": (["text"],),
    "echo": (False,),
    "use_beam_search": (False,),
    "min_tokens": (0,),
    "ignore_eos": (False,),
    "continue_final_message": (False,),
    "add_generation_prompt": (True,),
    "skip_special_tokens": (True,),
    "include_stop_str_in_output": (False,),
    **dict.fromkeys(("tool_choice",), ("auto", "none")),
    **dict.fromkeys(("stop_token_ids", "bad_words", "functions"), ([],)),
    **dict.fromkeys(("chat_template_kwargs",), ({},)),
    **dict.fromkeys(
        (
            *("function_call", "audio", "prediction", "web_search_options", "chat_template", "documents", "logits_processors"),
            *("structured_outputs", "guided_json", "guided_regex", "guided_choice", "guided_grammar", "prompt_logprobs"),
            *("allowed_token_ids", "truncate_prompt_tokens", "thinking_token_budget"),
        ),
        (),
    ),
}
"""The values of fields that leave the distribution of the policy as it is. null is always one of them."""


class _Body(BaseModel):
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatRequest:
    """A request whose every field is checked.

    ``tool_calls``: whether calls of tools are parsed from the answer. ``ignored``: names of fields that have no effect.
    """

    messages: tuple[Message, ...]
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_calls: bool = False
    stream: bool = False
    include_usage: bool = False
    stop: tuple[str, ...] = ()
    max_tokens: int | None = None
    logprobs: bool = False
    token_ids: bool = False
    ignored: tuple[str, ...] = ()


def parse_chat(data: bytes) -> ChatRequest:
    """Return the request. Raises Refusal for a body that is not one, and for a field that would change the distribution."""
    try:
        body = _Body.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"]))
        raise Refusal(f"{place or 'the body'}: {first['msg']}; send a request of Chat Completions", param=place or None) from None
    fields = body.model_extra or {}
    _check_fields(fields)
    tools = tuple(_tool(tool, place) for place, tool in enumerate(body.tools or ()))
    limits = [limit for limit in (body.max_completion_tokens, body.max_tokens) if limit is not None]
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    known = {*_ONLY, *_HARMLESS}
    ignored = [name for name, value in fields.items() if value is not None and name not in known]
    ignored += ["strict"] * any(tool["function"].get("strict") for tool in tools)  # clients set it by default
    return ChatRequest(
        messages=tuple(_message(message, place) for place, message in enumerate(body.messages)),
        tools=tools,
        tool_calls=bool(tools) and fields.get("tool_choice") != "none",
        stream=bool(body.stream),
        include_usage=bool((body.stream_options or {}).get("include_usage")),
        stop=tuple(text for text in stop if text),
        max_tokens=min(limits, default=None),
        logprobs=bool(body.logprobs),
        token_ids=bool(body.return_token_ids),
        ignored=tuple(ignored),
    )


def _check_fields(fields: Mapping[str, Any]) -> None:
    for name, value in fields.items():
        neutral = _ONLY.get(name)
        if neutral is None or value is None or value in neutral:
            continue
        advice = f", or send {' or '.join(json.dumps(one) for one in neutral)}" if neutral else ""
        raise Refusal(
            f"{name} = {_short(value)} would change the distribution that is trained, so the gateway refuses it; leave {name} out{advice}",
            code="unsupported_parameter",
            param=name,
        )


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _tool(tool: Mapping[str, Any], place: int) -> Mapping[str, Any]:
    function = tool.get("function")
    if tool.get("type", "function") != "function" or not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise Refusal(
            f'tools.{place} is not a function; send {{"type": "function", "function": {{"name": ..., "parameters": ...}}}}',
            param=f"tools.{place}",
        )
    return tool


def _message(message: Mapping[str, Any], place: int) -> Message:
    role = "system" if message.get("role") == "developer" else message.get("role")
    if not isinstance(role, str) or role not in ("system", "user", "assistant", "tool"):
        raise Refusal(f"messages.{place}: role {role!r} is unknown; use system, user, assistant or tool", param=f"messages.{place}.role")
    name, answered = message.get("name"), message.get("tool_call_id")
    return Message(
        role=role,
        content=_text(message.get("content"), place),
        tool_calls=_tool_calls(message.get("tool_calls"), place) if role == "assistant" else (),
        tool_call_id=answered if role == "tool" and isinstance(answered, str) else "",
        name=name if isinstance(name, str) else "",
    )


def _text(content: Any, place: int) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [content]
    for part in parts:
        if not (isinstance(part, Mapping) and part.get("type") in ("text", "refusal") and isinstance(part.get(part["type"]), str)):
            kind = part.get("type") if isinstance(part, Mapping) else type(part).__name__
            raise Refusal(
                f"messages.{place}: content of type {kind!r} is not text; the policy reads text only", param=f"messages.{place}.content"
            )
    return "".join(part[part["type"]] for part in parts)


def _tool_calls(calls: Any, place: int) -> tuple[Mapping[str, Any], ...]:
    if not isinstance(calls, list | None):
        raise Refusal(f"messages.{place}: tool_calls is not a list", param=f"messages.{place}.tool_calls")
    found = []
    for call in calls or ():
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise Refusal(f"messages.{place}: a tool call is not one of a function", param=f"messages.{place}.tool_calls")
        function = {"name": function["name"], "arguments": parsed_arguments(function.get("arguments"))}
        found.append({"id": str(call.get("id") or ""), "type": "function", "function": function})
    return tuple(found)


def parsed_arguments(text: Any) -> Any:
    """Return the arguments of a call as an object; the text itself, if it is not the JSON text of an object."""
    if not isinstance(text, str):
        return {} if text is None else text
    try:
        value = json.loads(text) if text.strip() else {}
    except (ValueError, RecursionError):
        return text
    return value if isinstance(value, Mapping | Sequence) and not isinstance(value, str) else text
