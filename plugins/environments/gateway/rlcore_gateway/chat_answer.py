"""Chat Completions of OpenAI: answers, whole and as a stream, and the dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rlcore_gateway.api_dialect import ApiDialect, Policy, PolicyAnswer, PolicyRequest, event
from rlcore_gateway.chat_request import parse_chat
from rlcore_gateway.refusal import Refusal

__all__ = ["CHAT"]


def _body(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> dict[str, Any]:
    choice: dict[str, Any] = {"index": 0, "message": _message(answer), "finish_reason": answer.finish, "logprobs": None}
    if asked.logprobs:
        choice["logprobs"] = _logprobs(answer, policy)
    if asked.return_token_ids:
        choice["token_ids"] = [token for token, *_ in answer.tokens(policy.tokenizer)]
    body = {**_head(answer, policy, "chat.completion"), "choices": [choice], "usage": _usage(answer)}
    return {**body, "prompt_token_ids": answer.context_ids} if asked.return_token_ids else body


def _events(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> Iterator[bytes]:
    """Yield the whole message in one event, then its end, then its usage."""
    head = _head(answer, policy, "chat.completion.chunk")
    delta = _message(answer)
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}
    first: dict[str, Any] = {**head, "choices": [choice]}
    if asked.logprobs:
        choice["logprobs"] = _logprobs(answer, policy)
    if asked.return_token_ids:
        choice["token_ids"] = [token for token, *_ in answer.tokens(policy.tokenizer)]
        first["prompt_token_ids"] = answer.context_ids
    yield event(first)
    yield event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish, "logprobs": None}]})
    if asked.include_usage:
        yield event({**head, "choices": [], "usage": _usage(answer)})
    yield b"data: [DONE]\n\n"


def _head(answer: PolicyAnswer, policy: Policy, kind: str) -> dict[str, Any]:
    return {"id": answer.id, "object": kind, "created": answer.created, "model": policy.model}


def _message(answer: PolicyAnswer) -> dict[str, Any]:
    calls = [
        {"id": call, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}}
        for call, name, arguments in answer.calls
    ]
    said: dict[str, Any] = {"role": "assistant", "content": answer.sent.content if answer.sent.content or not calls else None}
    if answer.reasoning:
        said["reasoning_content"] = answer.reasoning
    return {**said, "tool_calls": calls} if calls else said


def _usage(answer: PolicyAnswer) -> dict[str, int]:
    before, after = answer.lengths
    return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}


def _logprobs(answer: PolicyAnswer, policy: Policy) -> dict[str, Any]:
    found = [
        {"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []}
        for _, text, value in answer.tokens(policy.tokenizer)
    ]
    return {"content": found, "refusal": None}


CHAT = ApiDialect(
    paths=("/v1/chat/completions",),
    parse=parse_chat,
    body=_body,
    events=_events,
    refusal=Refusal.body,
    refusal_event=lambda refusal: event(refusal.body()),
)
"""Chat Completions."""
