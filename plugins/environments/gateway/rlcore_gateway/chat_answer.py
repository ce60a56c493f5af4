"""Answers of Chat Completions, whole and as a stream."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api import FinishReason, Message, Tokenizer
from rlcore_gateway.chat_request import ChatRequest
from rlcore_gateway.ledger import LedgerCall

__all__ = ["ChatAnswer", "answer_events", "answer_json"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatAnswer:
    """An answer as the client receives it. ``sent`` has its text and its tool calls."""

    call: LedgerCall
    sent: Message
    reasoning: str = ""

    @property
    def finish(self) -> str:
        """The reason why it ended, as the API names it."""
        assert self.call.completion is not None
        if self.sent.tool_calls:
            return "tool_calls"
        return "length" if self.call.completion.finish is FinishReason.LENGTH else "stop"

    def message(self) -> dict[str, Any]:
        """Return the message of the response."""
        calls = [_call_json(call) for call in self.sent.tool_calls]
        said: dict[str, Any] = {"role": "assistant", "content": self.sent.content if self.sent.content or not calls else None}
        if self.reasoning:
            said["reasoning_content"] = self.reasoning
        return {**said, "tool_calls": calls} if calls else said

    def usage(self) -> dict[str, int]:
        """Return the numbers of tokens."""
        before, after = len(self.call.context_ids()), len(self.call.sampled_ids)
        return {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after}

    def logprobs(self, tokenizer: Tokenizer) -> dict[str, Any]:
        """Return the log probability of each sampled token."""
        assert self.call.completion is not None
        said = self.call.completion
        texts = [tokenizer.decode([token]) for token in said.token_ids.tolist()]
        pairs = zip(texts, said.logprobs.tolist(), strict=True)
        found = [{"token": text, "logprob": value, "bytes": list(text.encode()), "top_logprobs": []} for text, value in pairs]
        return {"content": found, "refusal": None}


def answer_json(answer: ChatAnswer, asked: ChatRequest, tokenizer: Tokenizer, model: str) -> dict[str, Any]:
    """Return the body of a response."""
    choice: dict[str, Any] = {"index": 0, "message": answer.message(), "finish_reason": answer.finish, "logprobs": None}
    if asked.logprobs:
        choice["logprobs"] = answer.logprobs(tokenizer)
    if asked.token_ids:
        choice["token_ids"] = answer.call.sampled_ids.tolist()
    body = {**_head(answer, model, "chat.completion"), "choices": [choice], "usage": answer.usage()}
    return {**body, "prompt_token_ids": answer.call.context_ids().tolist()} if asked.token_ids else body


def answer_events(answer: ChatAnswer, asked: ChatRequest, tokenizer: Tokenizer, model: str) -> Iterator[bytes]:
    """Yield the server-sent events of an answer: the whole message in one of them, its end, its usage."""
    head = _head(answer, model, "chat.completion.chunk")
    delta = answer.message()
    if "tool_calls" in delta:
        delta["tool_calls"] = [{"index": place, **call} for place, call in enumerate(delta["tool_calls"])]
    choice: dict[str, Any] = {"index": 0, "delta": delta, "finish_reason": None, "logprobs": None}
    first: dict[str, Any] = {**head, "choices": [choice]}
    if asked.logprobs:
        choice["logprobs"] = answer.logprobs(tokenizer)
    if asked.token_ids:
        choice["token_ids"] = answer.call.sampled_ids.tolist()
        first["prompt_token_ids"] = answer.call.context_ids().tolist()
    yield _event(first)
    yield _event({**head, "choices": [{"index": 0, "delta": {}, "finish_reason": answer.finish, "logprobs": None}]})
    if asked.include_usage:
        yield _event({**head, "choices": [], "usage": answer.usage()})
    yield b"data: [DONE]\n\n"


def _event(body: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(body, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"


def _head(answer: ChatAnswer, model: str, kind: str) -> dict[str, Any]:
    return {"id": answer.call.id, "object": kind, "created": int(time.time()), "model": model}


def _call_json(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    return {"id": call["id"], "type": "function", "function": {"name": function["name"], "arguments": arguments}}
