"""Control tokens: tokens that structure a chat, such as ``<|im_end|>``. Which they are, which of them ends a turn, and how they are encoded
as plain text."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rlcore.api import ConfigError, Message
from rlcore_plugin_transformers.chat_template import PROBE, ChatTemplate

__all__ = ["PlainTextEncoder", "end_of_turn", "hidden_tokens"]

_ANSWER = "answer7text"
_BREAKS = "\ue000\ue001\uf8fe\uf8ff"
"""Characters of the private use area. One of them is put into a control token so that it is none."""
_FROM_OUTSIDE = ("user", "tool")


def hidden_tokens(inner: Any) -> dict[str, int]:
    """Return text -> id of the special tokens, which decoding leaves out."""
    added = {token.content: int(number) for number, token in inner.added_tokens_decoder.items() if token.special}
    return {**added, **{str(text): int(number) for text, number in zip(inner.all_special_tokens, inner.all_special_ids, strict=True)}}


def control_tokens(inner: Any, source: str) -> dict[str, int]:
    """Return text -> id of the special tokens, and of the other added tokens that the text ``source`` of the template writes."""
    added = {token.content: int(number) for number, token in inner.added_tokens_decoder.items()}
    written = {text: number for text, number in added.items() if text.strip() and text in source}
    return {**hidden_tokens(inner), **written}


def end_of_turn(template: ChatTemplate, inner: Any) -> str | None:
    """Return the control token that the template writes after an answer; None if it writes none, or only one that begins a turn."""
    tokens = control_tokens(inner, template.source)
    if not tokens:
        return None
    chat = (Message(role="user", content=PROBE), Message(role="assistant", content=_ANSWER))
    try:
        before, _, rest = template.text(chat, prompt=False).rpartition(_ANSWER)
    except Exception:  # the template has rules of its own, and no remark depends on it
        return None
    pattern = _pattern(tokens)
    begins = {found[-1] for part in (before, before.partition(PROBE)[0]) if (found := pattern.findall(part))}
    first = pattern.search(rest)
    return first[0] if first and first[0] not in begins else None


def _pattern(tokens: Mapping[str, int]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(text) for text in sorted(tokens, key=len, reverse=True)))


class PlainTextEncoder:
    """Encodes chats in which control tokens of a user's or a tool's text are plain text. The template's own stay control tokens."""

    def __init__(self, inner: Any, template: ChatTemplate) -> None:
        self._inner, self._template = inner, template
        # A token of one character cannot be broken, and it is ordinary text more often than not.
        self._tokens = {text: number for text, number in control_tokens(inner, template.source).items() if len(text) > 1}
        self._pattern = _pattern(self._tokens) if self._tokens else re.compile(r"(?!)")
        self._without: Any = None

    def needed(self, messages: Sequence[Message]) -> bool:
        """Return whether a text from outside holds a control token."""
        return any(message.role in _FROM_OUTSIDE and self._pattern.search(message.content) for message in messages)

    def encode(self, text: str) -> list[int]:
        """Return the tokens of a text that is not a chat, in which control tokens are plain text. Raises what ``ids`` raises."""
        return self._plain_ids(text) if self._pattern.search(text) else list(self._inner.encode(text, add_special_tokens=False))

    def ids(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]]) -> list[int]:
        """Return the tokens of the chat. Raises ConfigError if this tokenizer has no plain text for a control token."""
        everything = "".join(message.content for message in messages)
        mark = next((character for character in _BREAKS if character not in everything), _BREAKS[0])
        text = self._template.text([self._broken(message, mark) for message in messages], tools)
        plain = re.sub(f".{mark}[^{mark}]*{mark}", "", text, flags=re.DOTALL)
        whole = self._inner.encode(plain, add_special_tokens=False)
        found = list(self._pieces(text, mark))
        if list(self._pieces(plain, mark)) != whole:
            raise self._refusal("does not encode parts of a text as it does the whole")
        return found

    def _broken(self, message: Message, mark: str) -> Message:
        if message.role not in _FROM_OUTSIDE:
            return message
        return replace(message, content=self._pattern.sub(lambda found: f"{found[0][0]}{mark}{found[0][1:]}{mark}", message.content))

    def _pieces(self, text: str, mark: str) -> Iterator[int]:
        """Yield the tokens of the text piece by piece, where a piece is a control token or the text between two."""
        place = 0
        for found in [*self._pattern.finditer(text), None]:
            piece = text[place : found.start() if found else len(text)]
            if mark in piece:
                yield from self._plain_ids(piece.replace(mark, ""))
            elif piece:
                yield from self._inner.encode(piece, add_special_tokens=False)
            if found:
                yield self._tokens[found[0]]
                place = found.end()

    def _plain_ids(self, text: str) -> list[int]:
        if self._without is None:
            self._without = self._tokenizer_without()
        ids: list[int] = self._without.encode(text, add_special_tokens=False).ids
        if set(ids) & set(self._tokens.values()):
            raise self._refusal("has a control token for this text in its vocabulary")
        return ids

    def _tokenizer_without(self) -> Any:
        """Return the tokenizer with control tokens that no text can match. Other added tokens keep their numbers."""
        backend = getattr(self._inner, "backend_tokenizer", None)
        if backend is None:
            raise self._refusal("is a slow one")
        state = json.loads(backend.to_str())
        vocabulary = state["model"].get("vocab", {})
        known = set(vocabulary) if isinstance(vocabulary, Mapping) else {piece[0] for piece in vocabulary}
        kept = [item for item in state["added_tokens"] if item["content"] not in self._tokens or item["content"] not in known]
        state["added_tokens"] = [
            {**item, "content": f"\U000f0000{item['id']}"} if item["content"] in self._tokens else item for item in kept
        ]
        return type(backend).from_str(json.dumps({**state, "padding": None, "truncation": None}))

    def _refusal(self, why: str) -> ConfigError:
        return ConfigError(f"control tokens cannot be encoded as plain text, because the tokenizer {why}; type --control-tokens special")
