"""The tokens after an answer, from one rendered chat in place of two."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_gateway.rendering import ChatRenderer
from stub_engine import real_tokenizer

from rlcore.api import Message
from rlcore.api.conversations import following
from rlcore.testing import FakeTokenizer

LINE = (Message(role="user", content="a"),)
TOOLS = [{"type": "function", "function": {"name": "add", "parameters": {}}}]
TEXTS = st.sampled_from(["", "higher", "a\nb", "<|im_end|>", "<think>x</think> a", " ", "\n"])
TAILS = st.lists(st.lists(st.tuples(st.sampled_from(["user", "tool", "system"]), TEXTS), min_size=1, max_size=3), min_size=1, max_size=6)


class Fickle(FakeTokenizer):
    """A template that writes something at the beginning for each letter of the last message."""

    def render(self, messages: Any, tools: Any = ()) -> np.ndarray:
        return np.concatenate([[5] * len(messages[-1].content), super().render(messages, tools)]).astype(np.int32)


@pytest.mark.parametrize("make", [real_tokenizer, FakeTokenizer, Fickle])
@settings(max_examples=80, deadline=None)
@given(TAILS, st.booleans(), st.booleans())
def test_the_tokens_are_those_of_two_chats(make: Any, tails: list[Any], with_tools: bool, ended: bool) -> None:
    tokenizer, tools = make(), TOOLS if with_tools else ()
    renderer, sampled = ChatRenderer(tokenizer), np.array([7, *([min(tokenizer.stop_ids)] if ended else [])])
    for tail in tails:
        messages = [Message(role=role, content=text) for role, text in tail]
        found = renderer.tail(messages, tools, b"tools", sampled)
        assert found.tolist() == following(tokenizer, LINE, messages, tools, sampled).tolist()
