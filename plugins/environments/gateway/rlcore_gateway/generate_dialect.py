"""The interface of vLLM for tokens in and out, ``POST /inference/v1/generate``, as trainers and their environments use it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import Message, Tokenizer
from rlcore_gateway.api_dialect import ApiDialect, Policy, PolicyAnswer, PolicyRequest, event
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.request_fields import NEUTRAL, ignored_fields, validated

__all__ = ["GENERATE", "messages_in"]

_NEUTRAL = {name: values for name, values in NEUTRAL.items() if name not in ("stop_token_ids", "skip_special_tokens")}
_HARMLESS = ("skip_special_tokens", "spaces_between_special_tokens")  # the answer is tokens
_HEADER = re.compile(r"\s*(?:<[^<>\s]*>\s*)*(system|developer|user|assistant|model|tool)\b(?:\s*<[^<>\s]*>)*\s*")
_ROLES = {"developer": "system", "model": "assistant"}

_TokenId = Annotated[int, Field(ge=0, lt=2**31, strict=True)]


class _SamplingParams(BaseModel):
    """The fields that count. All others are extra fields."""

    model_config = ConfigDict(extra="allow")

    max_tokens: int | None = Field(default=None, ge=1)
    stop: str | list[str] | None = None
    stop_token_ids: list[_TokenId] | None = None
    logprobs: int | None = None


class _GenerateBody(BaseModel):
    """The fields that count. All others are extra fields."""

    model_config = ConfigDict(extra="allow")

    token_ids: list[_TokenId] = Field(min_length=1)
    sampling_params: _SamplingParams = _SamplingParams()
    model: str | None = None
    stream: bool | None = None
    stream_options: dict[str, Any] | None = None
    return_token_ids: bool | None = None
    output_mode: Literal["tokens"] = "tokens"


def _parse(data: bytes) -> PolicyRequest:
    body = validated(_GenerateBody, data, "vLLM's /inference/v1/generate")
    given = body.sampling_params
    stop = (given.stop,) if isinstance(given.stop, str) else tuple(given.stop or ())
    ignored = [*ignored_fields(body.model_extra or {}, _NEUTRAL), *ignored_fields(given.model_extra or {}, _NEUTRAL)]
    return PolicyRequest(
        token_ids=np.array(body.token_ids, np.int32),
        stop_ids=tuple(given.stop_token_ids or ()),
        stream=bool(body.stream),
        stop=tuple(text for text in stop if text),
        max_tokens=given.max_tokens,
        ignored=tuple(name for name in ignored if name not in _HARMLESS),
        include_usage=bool((body.stream_options or {}).get("include_usage")),
        return_token_ids=bool(body.return_token_ids),
    )


def _body(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> dict[str, Any]:
    before, after = answer.lengths
    return {
        "request_id": answer.id,
        "model": policy.model,
        "created": answer.created,
        "output_mode": "tokens",
        "choices": [_choice(answer, policy)],
        "usage": {"prompt_tokens": before, "completion_tokens": after, "total_tokens": before + after},
        "prompt_token_ids": answer.context_ids if asked.return_token_ids else None,
        "prompt_logprobs": None,
        "kv_transfer_params": None,
    }


def _choice(answer: PolicyAnswer, policy: Policy) -> dict[str, Any]:
    tokens = answer.tokens(policy.tokenizer)
    logprobs: list[dict[str, Any]] = [  # older clients read the id from "token", newer ones from "token_id"
        {"token": f"token_id:{token}", "token_id": token, "logprob": value, "rank": None, "bytes": None, "top_logprobs": []}
        for token, _, value in tokens
    ]
    return {"index": 0, "token_ids": [token for token, *_ in tokens], "logprobs": {"content": logprobs}, "finish_reason": answer.finish}


def _events(answer: PolicyAnswer, asked: PolicyRequest, policy: Policy) -> Iterator[bytes]:
    """Yield the whole answer in one event, then its usage."""
    body = _body(answer, asked, policy)
    head = {name: body[name] for name in ("request_id", "output_mode")}
    yield event({**head, "choices": body["choices"], "prompt_token_ids": body["prompt_token_ids"]})
    if asked.include_usage:
        yield event({**head, "choices": [], "usage": body["usage"]})
    yield b"data: [DONE]\n\n"


def _refusal(refusal: Refusal) -> dict[str, Any]:
    error = refusal.body()["error"]
    return {"error": {"message": error["message"], "type": error["code"] or error["type"], "param": error["param"], "code": refusal.status}}


def messages_in(token_ids: np.ndarray, tokenizer: Tokenizer) -> list[Message]:
    """Return the messages that tokens contain, for rewards and pages. The generation prompt at their end is none.

    The tokens that end an answer separate messages. A chat template writes the role before each; a text without one is the user's.
    """
    decode = getattr(tokenizer, "decode_all", tokenizer.decode)
    ends = [place + 1 for place, token in enumerate(token_ids.tolist()) if token in tokenizer.stop_ids]
    pieces = np.split(token_ids, ends)
    headers = [_HEADER.match(decode(piece.tolist())) for piece in pieces]
    if headers[-1] and headers[-1][1] in ("assistant", "model"):
        del pieces[-1], headers[-1]
    found: list[Message] = []
    for piece, header in zip(pieces, headers, strict=True):
        text = decode([token for token in piece.tolist() if token not in tokenizer.stop_ids])
        role = _ROLES.get(header[1], header[1]) if header else "user"
        text = text[header.end() :] if header else text
        if header or text.strip():
            found.append(Message(role=role, content=text))
    return found


GENERATE = ApiDialect(
    paths=("/inference/v1/generate", "/v1/inference/v1/generate"),
    parse=_parse,
    body=_body,
    events=_events,
    refusal=_refusal,
    refusal_event=lambda refusal: event(_refusal(refusal)),
    history="",
)
"""Tokens in and out, as vLLM has it."""
