"""What all dialects have in common: one form of a request, one of an answer, and a table of functions for each dialect."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rlcore.api import Completion, FinishReason, Message, Tokenizer
from rlcore_gateway.ledger import LedgerCall
from rlcore_gateway.refusal import Refusal

__all__ = ["CANNED_ID", "ApiDialect", "Policy", "PolicyAnswer", "PolicyRequest", "event", "json_bytes"]

CANNED_ID = "canned-"
"""How the id of an answer begins that the policy did not give."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyRequest:
    """A request of any dialect, whose every field is checked.

    ``tools``: in the form of Chat Completions. ``tool_calls``: whether calls of tools are parsed from the answer.
    ``ignored``: names of fields that have no effect.
    ``token_ids``: int32, the whole context; None if the messages are the context.
    ``stop_ids``: tokens that the client expects to end an answer.
    ``previous``: the id of the response that this request continues; its ``messages`` are then new ones.
    ``after``: the call that this request continues by an id, None if its messages alone say that.
    ``instructions``: whether the first message is an instruction of this request, and not part of its history.
    ``store``: whether later requests may continue the answer by its id.
    ``include_usage``, ``logprobs``, ``return_token_ids``: what the client wants in the answer. ``echo``: fields of the request that the
        answer repeats.
    """

    messages: tuple[Message, ...] = ()
    token_ids: np.ndarray | None = None
    tools: tuple[Mapping[str, Any], ...] = ()
    tool_calls: bool = False
    stream: bool = False
    stop: tuple[str, ...] = ()
    stop_ids: tuple[int, ...] = ()
    max_tokens: int | None = None
    ignored: tuple[str, ...] = ()
    previous: str = ""
    after: LedgerCall | None = None
    instructions: bool = False
    store: bool = False
    include_usage: bool = False
    logprobs: bool = False
    return_token_ids: bool = False
    echo: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyAnswer:
    """An answer as the client receives it.

    ``id``: that of the response, by which an environment names the call.
    ``sent``: its text and its tool calls. ``stop``: the stop string of the client that ended it, or "".
    ``call``: None for an answer that the policy did not give.
    """

    id: str
    sent: Message
    call: LedgerCall | None
    reasoning: str = ""
    stop: str = ""
    created: int = field(default_factory=lambda: int(time.time()))

    @property
    def finish(self) -> str:
        """The reason why it ended: "tool_calls", "length" or "stop"."""
        if self.sent.tool_calls:
            return "tool_calls"
        said = self._completion
        return "length" if said is not None and said.finish is FinishReason.LENGTH else "stop"

    @property
    def _completion(self) -> Completion | None:
        return None if self.call is None else self.call.completion

    @property
    def calls(self) -> list[tuple[str, str, Any]]:
        """Id, name and arguments of each call of a tool."""
        return [(call["id"], call["function"]["name"], call["function"]["arguments"]) for call in self.sent.tool_calls]

    @property
    def context_ids(self) -> list[int]:
        """The tokens before the answer."""
        return [] if self.call is None else self.call.context_ids().tolist()

    @property
    def lengths(self) -> tuple[int, int]:
        """The numbers of tokens of the context and of the answer."""
        return (0, 0) if self.call is None else (self.call.context_length, len(self.call.sampled_ids))

    def tokens(self, tokenizer: Tokenizer) -> list[tuple[int, str, float]]:
        """Return each sampled token with its text and its log probability."""
        said = self._completion
        ids = list(tokenizer.encode(self.sent.content)) if said is None else said.token_ids.tolist()
        logprobs = [0.0] * len(ids) if said is None else said.logprobs.tolist()
        return list(zip(ids, [tokenizer.decode([token]) for token in ids], logprobs, strict=True))


@dataclass(frozen=True, slots=True)
class Policy:
    """What an answer tells of the policy."""

    model: str
    tokenizer: Tokenizer


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiDialect:
    """An API that the gateway speaks.

    ``paths``: the addresses of its requests.
    ``parse``: returns the request that a body contains, or raises Refusal.
    ``body``, ``events``: return an answer as a whole, or as the parts of a stream.
    ``refusal``, ``refusal_event``: return a refusal as a body, or as a part of a stream that has begun.
    ``history``: the field of a body with the list of messages, "" if there is none. Each message means the same whatever is before it, if
        that does not end with the assistant's.
    ``ping``: the part of a stream that shows a waiting client that the gateway lives.
    """

    paths: tuple[str, ...]
    parse: Callable[[bytes], PolicyRequest]
    body: Callable[[PolicyAnswer, PolicyRequest, Policy], Mapping[str, Any]]
    events: Callable[[PolicyAnswer, PolicyRequest, Policy], Iterator[bytes]]
    refusal: Callable[[Refusal], Mapping[str, Any]]
    refusal_event: Callable[[Refusal], bytes]
    history: str = "messages"
    ping: bytes = b": waiting\n\n"


def json_bytes(body: Any) -> bytes:
    """Return a body as JSON."""
    return json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode("utf-8", "replace")


def event(body: Mapping[str, Any], name: str = "") -> bytes:
    """Return a server-sent event."""
    head = f"event: {name}\n".encode() if name else b""
    return b"%bdata: %b\n\n" % (head, json_bytes(body))
