"""OpenAI Responses: answers, whole and as a stream, and the dialect."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

from rlcore_gateway.api_dialect import ApiDialect, Policy, PolicyAnswer, PolicyRequest, event
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.responses_request import parse_responses

__all__ = ["RESPONSES"]

_PLAIN = {
    "error": None,
    "parallel_tool_calls": True,
    "temperature": None,
    "top_p": None,
    "truncation": "disabled",
    "text": {"format": {"type": "text"}},
    "background": False,
}
"""Fields with the same value in every response."""


def _body(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> dict[str, Any]:
    cut = answer.finish == "length"
    before, after = answer.lengths
    usage = {
        "input_tokens": before,
        "input_tokens_details": {"cached_tokens": 0, "cache_write_tokens": 0},
        "output_tokens": after,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": before + after,
    }
    return {
        **_head(answer, asked, policy),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "output": _items(answer, asked, policy),
        "usage": usage,
    }


def _head(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> dict[str, Any]:
    echo = {name: value for name, value in asked.echo.items() if name != "encrypted"}
    head = {"id": answer.id, "object": "response", "created_at": answer.created, "model": policy.model}
    return {**head, **_PLAIN, **echo, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}


def _items(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> list[dict[str, Any]]:
    """Return the items of an answer. Their ids hold its id, so that they are unique."""
    status = "incomplete" if answer.finish == "length" else "completed"
    found: list[dict[str, Any]] = []
    if answer.reasoning:
        content = [{"type": "reasoning_text", "text": answer.reasoning}]
        found.append({"type": "reasoning", "id": f"rs_{answer.id}", "summary": [], "content": content, "status": status})
        if asked.echo.get("encrypted"):  # clients that keep the history themselves send an item back only if it has this
            found[-1]["encrypted_content"] = "rlcore"
    if answer.sent.content or not answer.calls:
        pairs = answer.tokens(policy.tokenizer) if asked.logprobs else []
        logprobs = [{"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []} for _, text, value in pairs]
        part = {"type": "output_text", "text": answer.sent.content, "annotations": [], "logprobs": logprobs}
        found.append({"type": "message", "id": f"msg_{answer.id}", "role": "assistant", "status": status, "content": [part]})
    for call, name, arguments in answer.calls:
        text = json.dumps(arguments, ensure_ascii=False)
        found.append({"type": "function_call", "id": f"fc_{call}", "call_id": call, "name": name, "arguments": text, "status": status})
    return found


def _events(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> Iterator[bytes]:
    """Yield each item in one piece, between the events that the SDK expects around it."""
    number = count()

    def named(kind: str, **fields: Any) -> bytes:
        kind = f"response.{kind}"
        return event({"type": kind, **fields, "sequence_number": next(number)}, kind)

    body = _body(answer, asked, policy)
    head = {**_head(answer, asked, policy), "instructions": None, "tools": []}  # both may be long, and the last event has them
    yield named("created", response=head)
    yield named("in_progress", response=head)
    for place, item in enumerate(body["output"]):
        emptied: dict[str, Any] = {"content": []} if "content" in item else {"arguments": ""}
        yield named("output_item.added", output_index=place, item={**item, **emptied, "status": "in_progress"})
        for kind, fields in _parts(item):
            yield named(kind, item_id=item["id"], output_index=place, **fields)
        yield named("output_item.done", output_index=place, item=item)
    yield named(body["status"], response=body)


def _parts(item: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the events between the beginning and the end of an item."""
    if item["type"] == "function_call":
        yield "function_call_arguments.delta", {"delta": item["arguments"]}
        yield "function_call_arguments.done", {"name": item["name"], "arguments": item["arguments"]}
        return
    (part,) = item["content"]
    empty = {**part, "text": "", **({"logprobs": []} if "logprobs" in part else {})}
    extra = {"logprobs": part["logprobs"]} if "logprobs" in part else {}
    yield "content_part.added", {"content_index": 0, "part": empty}
    yield f"{part['type']}.delta", {"content_index": 0, "delta": part["text"], **extra}
    yield f"{part['type']}.done", {"content_index": 0, "text": part["text"], **extra}
    yield "content_part.done", {"content_index": 0, "part": part}


def _refusal_event(refusal: Refusal) -> bytes:
    """Return the event of an error. It has the fields of the API, and the object by which the SDK recognizes an error."""
    error = refusal.body()["error"]
    fields = {name: error[name] for name in ("code", "message", "param")}
    return event({"type": "error", **fields, "sequence_number": 0, "error": error}, "error")


RESPONSES = ApiDialect(
    paths=("/v1/responses",),
    parse=parse_responses,
    body=_body,
    events=_events,
    refusal=Refusal.body,
    refusal_event=_refusal_event,
    history="input",
)
"""Responses of OpenAI."""
