"""Anthropic Messages: answers, whole and as a stream, and the dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from rlcore_gateway.api_dialect import ApiDialect, Policy, PolicyAnswer, PolicyRequest, event
from rlcore_gateway.messages_request import NO_THREADS, parse_messages
from rlcore_gateway.refusal import Refusal

__all__ = ["MESSAGES"]

_REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}
_ERRORS = {401: "authentication_error", 404: "not_found_error", 413: "request_too_large", 500: "api_error"}


def _body(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> dict[str, Any]:
    before, after = answer.lengths
    stopped = answer.finish == "stop" and bool(answer.stop)
    return {
        "id": answer.id,
        "type": "message",
        "role": "assistant",
        "model": policy.model,
        "content": _blocks(answer),
        "stop_reason": "stop_sequence" if stopped else _REASONS[answer.finish],
        "stop_sequence": answer.stop if stopped else None,
        "usage": {"input_tokens": before, "output_tokens": after, "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0},
    }


def _blocks(answer: PolicyAnswer) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    if answer.reasoning:  # clients send thinking back only if it has a signature
        found.append({"type": "thinking", "thinking": answer.reasoning, "signature": "rlcore"})
    if answer.sent.content or not answer.calls:
        found.append({"type": "text", "text": answer.sent.content})
    return [*found, *({"type": "tool_use", "id": call, "name": name, "input": arguments} for call, name, arguments in answer.calls)]


def _events(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> Iterator[bytes]:
    """Yield each block in one piece, between the events that the SDK expects around it."""
    body = _body(answer, asked, policy)
    end = {name: body[name] for name in ("stop_reason", "stop_sequence")}
    yield _named("message_start", message={**body, **dict.fromkeys(end), "content": [], "usage": {**body["usage"], "output_tokens": 0}})
    for place, block in enumerate(body["content"]):
        empty, deltas = _parts(block)
        yield _named("content_block_start", index=place, content_block=empty)
        for delta in deltas:
            yield _named("content_block_delta", index=place, delta=delta)
        yield _named("content_block_stop", index=place)
    yield _named("message_delta", delta=end, usage=body["usage"])
    yield _named("message_stop")


def _parts(block: dict[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return a block as it begins, and what is added to it."""
    match block["type"]:
        case "tool_use":
            text = json.dumps(block["input"], ensure_ascii=False)
            return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]
        case "thinking":
            deltas = [{"type": f"{name}_delta", name: block[name]} for name in ("thinking", "signature")]
            return {**block, "thinking": "", "signature": ""}, deltas
        case _:
            return {**block, "text": ""}, [{"type": "text_delta", "text": block["text"]}]


def _named(kind: str, **fields: Any) -> bytes:
    return event({"type": kind, **fields}, kind)


def _refusal(refusal: Refusal) -> dict[str, Any]:
    # Agents recognize by these words that they must shorten the chat.
    told = f"prompt is too long: {refusal}" if refusal.code == "context_length_exceeded" else str(refusal)
    error: dict[str, Any] = {"type": _ERRORS.get(refusal.status, "invalid_request_error"), "message": told}
    if refusal.code == NO_THREADS:
        error["details"] = {"error_code": NO_THREADS, "unsupported": ["thread"]}
    return {"type": "error", "error": error}


MESSAGES = ApiDialect(
    paths=("/v1/messages", "/v1/v1/messages"),  # the SDK adds /v1 to its base URL, which may be that of an SDK of OpenAI
    parse=parse_messages,
    body=_body,
    events=_events,
    refusal=_refusal,
    refusal_event=lambda refusal: event(_refusal(refusal), "error"),
    ping=_named("ping"),
)
"""Messages of Anthropic."""
