"""Renders chats for all ledgers of a gateway, and remembers what episodes of one prompt have in common."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

import numpy as np

from rlcore.api import Message, Tokenizer
from rlcore.api.conversations import following

__all__ = ["ChatRenderer", "Tools"]

Tools = Sequence[Mapping[str, Any]]

_ONE_LINE, _ANSWER = (Message(role="user", content="a"),), Message(role="assistant", content="a")
_UNKNOWN = np.zeros(0, np.int32)
_REMEMBERED = 64
_MOST_FORMS = 1024


class ChatRenderer:
    """Renders with one tokenizer. Every method raises the tokenizer's DataError if the chat template refuses the messages."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._chats: OrderedDict[bytes, np.ndarray] = OrderedDict()
        self._needs_tools: dict[tuple[bytes, ...], bool] = {}
        self._heads: dict[tuple[bytes, ...], np.ndarray | None] = {}
        """The tokens up to the end of the answer, for each sequence of roles; None if they differ."""

    def chat(self, messages: Sequence[Message], tools: Tools) -> np.ndarray:
        """Return int32[C]: a whole chat."""
        return self.tokenizer.render(messages, tools=tools) if tools else self.tokenizer.render(messages)

    def first_chat(self, messages: Sequence[Message], tools: Tools) -> np.ndarray:
        """Return what ``chat`` returns. The rollouts of a prompt begin with the same chat, which is then rendered once."""
        # The key is the exact text: the canonical form of a message leaves out thinking and spaces, which the template may render.
        key = blake2b(repr((list(messages), list(tools))).encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if key not in self._chats:
            self._chats[key] = self.chat(messages, tools)
            self._chats[key].setflags(write=False)
        self._chats.move_to_end(key)
        if len(self._chats) > _REMEMBERED:
            self._chats.popitem(last=False)
        return self._chats[key]

    def tail(self, messages: Sequence[Message], tools: Tools, tools_key: bytes, sampled: np.ndarray) -> np.ndarray:
        """Return int32: the tokens that follow the answer ``sampled``.

        Most templates write tools only at the beginning. The tokens are therefore compared once with those of a chat without tools, for
        each sequence of roles. Later calls do not render the tools.
        """
        form = (tools_key, *(message.role.encode() for message in messages))
        if not tools or self._needs_tools.get(form) is False:
            return self._after_answer(messages, (), form, sampled)
        if form in self._needs_tools:
            return self._after_answer(messages, tools, form, sampled)
        whole = following(self.tokenizer, _ONE_LINE, messages, tools, sampled)
        if len(self._needs_tools) < _MOST_FORMS:
            self._needs_tools[form] = not np.array_equal(whole, following(self.tokenizer, _ONE_LINE, messages, (), sampled))
        return whole

    def _after_answer(self, messages: Sequence[Message], tools: Tools, form: tuple[bytes, ...], sampled: np.ndarray) -> np.ndarray:
        """Return what ``following`` returns after one line. It renders two chats, to find the end of the answer; here one is enough.

        Chats whose messages have the same roles are alike up to there. If two are not, all chats of these roles are rendered twice.
        """
        head = self._heads.get(form, _UNKNOWN)
        if head is not None:
            chat = self.chat([*_ONE_LINE, _ANSWER, *messages], tools)
            if head is _UNKNOWN and len(self._heads) < _MOST_FORMS:
                self._heads[form] = chat[: len(chat) - len(following(self.tokenizer, _ONE_LINE, messages, tools))]
            elif head is not _UNKNOWN and len(head) < len(chat) and np.array_equal(chat[: len(head)], head):
                ids = chat[len(head) :]
                return ids[1:] if ids[0] in self.tokenizer.stop_ids and ids[0] in sampled[-1:] else ids
            elif head is not _UNKNOWN:
                self._heads[form] = None
        return following(self.tokenizer, _ONE_LINE, messages, tools, sampled)
