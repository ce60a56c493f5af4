"""Messages of a client, as the chat template reads them, and their canonical form, by which the ledger recognizes them.

Two messages are equal if their roles, their stripped texts, the ids of their tool calls and the parsed arguments are equal. Reasoning does
not count, because many clients leave it out when they send an answer back.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from rlcore.api import Message

__all__ = ["chains", "key_of", "split_reasoning", "start_of", "tools_key"]

THINK, END_OF_THINKING = "<think>", "</think>"


def split_reasoning(text: str) -> tuple[str, str]:
    """Return the reasoning and the rest of an answer. The opening tag may be missing, because many templates end with it."""
    before, mark, after = text.partition(END_OF_THINKING)
    if mark:
        return before.strip().removeprefix(THINK).strip(), after.strip()
    opened, mark, thinking = text.partition(THINK)
    return (thinking.strip(), opened.strip()) if mark and not opened.strip() else ("", text)


def key_of(message: Message) -> bytes:
    """Return the hash of the canonical form of a message."""
    text = split_reasoning(message.content)[1] if message.role == "assistant" else message.content
    calls = [(call.get("id", ""), call["function"]["name"], _sorted(call["function"]["arguments"])) for call in message.tool_calls]
    name = "" if message.role == "assistant" else message.name  # some clients give the policy a name when they send its answer back
    return _digest(repr((message.role, text.strip(), message.tool_call_id, name, calls)).encode("utf-8", "surrogatepass"))


def tools_key(tools: Sequence[Mapping[str, Any]]) -> bytes:
    """Return the hash of the schemas of tools."""
    return _digest(_sorted(tools).encode("utf-8", "surrogatepass"))


def start_of(player: str, first: bytes) -> bytes:
    """Return the hash with which the chats of a player begin. Players never share a call."""
    return _digest(first + player.encode("utf-8", "surrogatepass")) if player else first


def chains(start: bytes, keys: Iterable[bytes]) -> list[bytes]:
    """Return a hash for each beginning of a list of messages: first that of no message, last that of all."""
    found = [start]
    for key in keys:
        found.append(_digest(found[-1] + key))
    return found


def _sorted(value: Any) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=16).digest()
