"""Reads sampled tokens as an answer: text, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any

from rlcore.api import Message, Tokenizer
from rlcore_gateway.api_dialect import PolicyRequest
from rlcore_gateway.chat_messages import END_OF_THINKING, THINK, split_reasoning
from rlcore_gateway.ledger import LedgerCall
from rlcore_gateway.tool_parsers import ParsedCall, parser_named

__all__ = ["CompletionReader", "ReadAnswer"]

_OPENING = 8
"""The number of last tokens of a context in which a template may open the thinking."""


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """``answer``: as the chat template reads it, with the reasoning. ``sent``: as the client receives it. ``stop``: the stop string of the
    client that ended it, or ""."""

    answer: Message
    sent: Message
    reasoning: str
    stop: str = ""


class CompletionReader:
    """Reads the answers of one tokenizer. Raises ConfigError for an unknown parser of tool calls."""

    def __init__(self, tokenizer: Tokenizer, tool_parser: str = "auto") -> None:
        self._tokenizer = tokenizer
        self._decode_all = getattr(tokenizer, "decode_all", tokenizer.decode)
        self._parse = parser_named(tool_parser, getattr(getattr(tokenizer, "template", None), "source", ""))

    def read(self, token_ids: Sequence[int], call: LedgerCall, asked: PolicyRequest) -> ReadAnswer:
        """Return the answer that the tokens contain. Stop strings of the client are not part of it."""
        opened = THINK in (opening := self._decode_all(call.tail_ids[-_OPENING:].tolist())) and END_OF_THINKING not in opening
        text, stop = _before_stop(self._tokenizer.decode(token_ids), asked.stop)
        reasoning, content = (text.strip(), "") if opened and END_OF_THINKING not in text else split_reasoning(text)
        rest, calls = self._tool_calls(token_ids, asked) if asked.tool_calls else ("", [])
        if not calls:
            return ReadAnswer(Message(role="assistant", content=text), Message(role="assistant", content=content), reasoning, stop)
        minted = tuple(_minted(call, place, parsed) for place, parsed in enumerate(calls))
        thinking = text[: text.find(END_OF_THINKING) + len(END_OF_THINKING)] + "\n\n" if END_OF_THINKING in text else ""
        answer = Message(role="assistant", content=thinking + rest, tool_calls=minted)
        return ReadAnswer(answer, Message(role="assistant", content=rest, tool_calls=minted), reasoning, stop)

    def _tool_calls(self, token_ids: Sequence[int], asked: PolicyRequest) -> tuple[str, list[ParsedCall]]:
        """Return the text beside the calls, and the calls. Markers of calls may be special tokens, so the text has these."""
        ids = list(token_ids)
        while ids and not self._tokenizer.decode(ids[-1:]):
            ids.pop()
        names = [tool["function"]["name"] for tool in asked.tools]
        return self._parse(split_reasoning(_before_stop(self._decode_all(ids), asked.stop)[0])[1], names)


def _minted(call: LedgerCall, place: int, parsed: ParsedCall) -> Mapping[str, Any]:
    """Return a tool call with an id of nine letters and digits, which is the form that every chat template accepts."""
    name, arguments = parsed
    digest = blake2b(b"%b %d %d" % (call.chain, call.ordinal, place), digest_size=8).hexdigest()
    return {"id": digest[:9], "type": "function", "function": {"name": name, "arguments": arguments}}


def _before_stop(text: str, stop: Sequence[str]) -> tuple[str, str]:
    """Return the text before the first stop string, and that string; "" if there is none."""
    places = [(place, string) for string in stop if (place := text.find(string)) >= 0]
    place, string = min(places, default=(len(text), ""))
    return text[:place], string
