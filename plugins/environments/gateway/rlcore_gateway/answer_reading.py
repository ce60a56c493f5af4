"""Reads sampled tokens as an answer: text, reasoning and tool calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.api import Message, Tokenizer
from rlcore_gateway.chat_messages import split_reasoning
from rlcore_gateway.chat_request import ChatRequest
from rlcore_gateway.ledger import Call

__all__ = ["AnswerReader", "ReadAnswer"]


@dataclass(frozen=True, slots=True)
class ReadAnswer:
    """``answer``: as the chat template reads it, with the reasoning. ``sent``: as the client receives it."""

    answer: Message
    sent: Message
    reasoning: str


class AnswerReader:
    """Reads the answers of one tokenizer."""

    def __init__(self, tokenizer: Tokenizer, tool_parser: str = "auto") -> None:
        self._tokenizer = tokenizer

    def read(self, token_ids: np.ndarray, call: Call, asked: ChatRequest) -> ReadAnswer:
        """Return the answer that the tokens contain. Stop strings of the client are not part of it."""
        text = _before_stop(self._tokenizer.decode(token_ids.tolist()), asked.stop)
        reasoning, content = split_reasoning(text)
        calls: tuple[dict[str, Any], ...] = ()
        answer = Message(role="assistant", content=text, tool_calls=calls)
        return ReadAnswer(answer, Message(role="assistant", content=content, tool_calls=calls), reasoning)


def _before_stop(text: str, stop: Sequence[str]) -> str:
    places = [place for string in stop if (place := text.find(string)) >= 0]
    return text[: min(places)] if places else text
