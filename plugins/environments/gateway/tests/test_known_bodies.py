"""A chat that clients send whole with each request: what was parsed before is not parsed again, and the request is the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_gateway import known_bodies
from rlcore_gateway.api_dialect import ApiDialect, PolicyRequest
from rlcore_gateway.chat_answer import CHAT
from rlcore_gateway.generate_dialect import GENERATE
from rlcore_gateway.known_bodies import KnownBodies
from rlcore_gateway.messages_answer import MESSAGES
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.responses_answer import RESPONSES

TEXTS = st.sampled_from(["a", "é\n", '"]', ', {"role": "user"}', "\ud800", "", "𝄞"])
CALL: dict[str, Any] = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"a": [1]}'}}


def chat_item(role: str, text: str) -> dict[str, Any]:
    more = {"tool_call_id": "c"} if role == "tool" else {"tool_calls": [CALL]} if role == "assistant" and not text else {}
    return {"role": role, "content": text, **more}


def responses_item(role: str, text: str) -> dict[str, Any]:
    if role == "tool":
        return {"type": "function_call_output", "call_id": "c", "output": text}
    if role == "assistant" and not text:
        return {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    return {"role": role, "content": text}


def messages_item(role: str, text: str) -> dict[str, Any]:
    if role == "tool":
        return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": text}, {"type": "text", "text": text}]}
    return {"role": role, "content": text}


ITEMS: list[tuple[ApiDialect, Callable[[str, str], dict[str, Any]]]] = [
    (CHAT, chat_item),
    (RESPONSES, responses_item),
    (MESSAGES, messages_item),
]
STEPS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.lists(st.tuples(st.sampled_from(["user", "assistant", "tool", "wrong"]), TEXTS), max_size=4),
        st.sampled_from([None, 1]),
        st.booleans(),
        st.booleans(),
        st.sampled_from([{}, {"system": "s", "instructions": "i"}, {"system": "other", "instructions": "é"}, {"stop": "x"}]),
        st.sampled_from(["", "twice", "cut"]),
    ),
    min_size=1,
    max_size=8,
)
"""(the request that is continued; new items; the indent; ASCII only; fields before the items; further fields; what is odd)"""


def parsed(parse: Callable[[], PolicyRequest]) -> PolicyRequest | str:
    try:
        return parse()
    except Refusal as refusal:
        return str(refusal)


def body(dialect: ApiDialect, items: list[Any], indent: int | None, ascii_only: bool, after: bool, more: dict[str, Any], odd: str) -> bytes:
    known = {"system", "stop"} if dialect is MESSAGES else {"instructions", "stop"} if dialect is RESPONSES else {"stop"}
    more = {name: value for name, value in more.items() if name in known}
    chat = {dialect.history: items}
    text = json.dumps({**chat, **more} if after else {**more, **chat}, indent=indent, ensure_ascii=ascii_only)
    if odd == "twice":
        text = text[:-1] + f', "{dialect.history}": ' + json.dumps(items[:1]) + "}"
    return text.encode("utf-8", "replace")[: -3 if odd == "cut" else None]


@pytest.mark.parametrize(("dialect", "item"), ITEMS, ids=["chat", "responses", "messages"])
@settings(max_examples=150, deadline=None)
@given(STEPS)
def test_a_request_is_the_same_whatever_is_known(dialect: ApiDialect, item: Callable[[str, str], dict[str, Any]], steps: list[Any]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(known_bodies, "_SHORTEST", 0)
        bodies, chats = KnownBodies(), [[item("user", "guess")]]
        for place, added, *form in steps:
            chats.append([*chats[place % len(chats)], *(item(*one) for one in added)])
            data = body(dialect, chats[-1], *form)
            assert parsed(lambda data=data: bodies.parse(dialect, data)) == parsed(lambda data=data: dialect.parse(data))


def test_only_what_is_new_is_parsed() -> None:
    seen: list[bytes] = []
    dialect = ApiDialect(
        **{**{name: getattr(CHAT, name) for name in ApiDialect.__slots__}, "parse": lambda data: [seen.append(data), CHAT.parse(data)][1]}
    )
    bodies, chat = KnownBodies(), [chat_item("user", "guess" * 1000)]
    requests = []
    for turn in range(20):
        chat += [chat_item("assistant", f"answer {turn}"), chat_item("user", "hint")]
        requests.append(bodies.parse(dialect, json.dumps({"messages": chat, "stop": "x"}).encode()))
    assert len(seen[0]) > 5000
    assert max(map(len, seen[1:])) < 150
    assert [len(request.messages) for request in requests] == [3 + 2 * turn for turn in range(20)]
    assert requests[-1].messages[0] is requests[0].messages[0]
    assert len(bodies._known) == 1  # one for the chat, and not one for each request


def test_the_number_of_known_chats_is_bounded() -> None:
    bodies = KnownBodies()
    for number in range(50):
        bodies.parse(CHAT, json.dumps({"messages": [chat_item("user", f"{number} guess" * 1000)]}).encode())
    bodies.parse(GENERATE, json.dumps({"token_ids": [1] * 5000}).encode())
    assert len(bodies._known) == 8


def test_a_refusal_names_the_message_by_its_place_in_the_whole_chat() -> None:
    bodies, chat = KnownBodies(), [chat_item("user", "guess" * 1000), chat_item("assistant", "a"), chat_item("user", "b")]
    bodies.parse(CHAT, json.dumps({"messages": chat}).encode())
    chat += [chat_item("assistant", "a"), chat_item("wrong", "b")]
    with pytest.raises(Refusal, match=r"messages\.4"):
        bodies.parse(CHAT, json.dumps({"messages": chat}).encode())
