"""Bodies of one episode. Clients send a chat whole with each request; what an earlier body began with is not parsed again."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, replace

from rlcore.api import Message
from rlcore_gateway.api_dialect import ApiDialect, PolicyRequest
from rlcore_gateway.refusal import Refusal

__all__ = ["KnownBodies"]

_CHATS = 8
_SHORTEST = 4096
"""A shorter body is parsed faster than it is compared."""
_SPACE = re.compile(r"[ \t\n\r]*")
_NEXT = re.compile(rb"[ \t\n\r]*,")


@dataclass(frozen=True, slots=True)
class _Known:
    """``begun``: a body up to the end of its last message; ``first``: where its first message begins. ``messages``: those between."""

    dialect: ApiDialect
    begun: bytes
    first: int
    messages: tuple[Message, ...]


class KnownBodies:
    """Parses the bodies of one episode, and remembers the last one of each chat."""

    def __init__(self) -> None:
        self._known: list[_Known] = []

    def parse(self, dialect: ApiDialect, data: bytes) -> PolicyRequest:
        """Return what ``dialect.parse`` returns, or raise what it raises. Messages of an earlier request are the same objects."""
        for known in sorted(self._known, key=lambda one: len(one.begun), reverse=True):
            if known.dialect is dialect and data.startswith(known.begun) and (asked := self._continued(known, data)) is not None:
                return asked
        asked = dialect.parse(data)
        self._keep(dialect, data, data, asked)
        return asked

    def _continued(self, known: _Known, data: bytes) -> PolicyRequest | None:
        """Return a request that goes on from a known one; None if it does not, or if it must be parsed as a whole.

        The new messages alone, in the list of the body, are a body of their own.
        """
        if (comma := _NEXT.match(data, len(known.begun))) is None:
            return None
        rest = known.begun[: known.first] + data[comma.end() :]
        try:
            asked = known.dialect.parse(rest)
        except Refusal:  # its words name the place of a message
            return None
        if (kept := self._keep(known.dialect, data, rest, asked, known)) is None:
            return None
        own = int(asked.instructions)
        return replace(asked, messages=(*asked.messages[:own], *kept.messages))

    def _keep(self, dialect: ApiDialect, data: bytes, rest: bytes, asked: PolicyRequest, before: _Known | None = None) -> _Known | None:
        """Remember a body, of which ``rest`` was parsed, in place of the one that it goes on from. Return None if that is impossible."""
        if not dialect.history or len(data) < _SHORTEST or asked.messages[-1].role == "assistant":
            return None
        text = rest.decode()
        if (place := _items(text, dialect.history)) is None:
            return None
        after = len(text[place[1] :].encode())
        first = len(text[: place[0]].encode()) if before is None else before.first
        said = asked.messages[int(asked.instructions) :]
        known = _Known(dialect, data[: len(data) - after], first, said if before is None else before.messages + said)
        self._known = [*(one for one in self._known if one is not before), known][-_CHATS:]
        return known


def _items(text: str, name: str) -> tuple[int, int] | None:
    """Return where the items of the one list of this name begin and end in a JSON object; None if there is none, or another value too."""
    decode = json.JSONDecoder().raw_decode
    found, at = None, _after(text, _after(text, 0) + 1)
    while text[at] != "}":
        key, at = decode(text, at)
        at = _after(text, _after(text, at) + 1)
        if key == name and (found is not None or text[at] != "["):
            return None
        if key == name:
            found = at + 1, _end_of_items(text, at + 1)
            at = _after(text, found[1]) + 1
        else:
            at = decode(text, at)[1]
        at = _after(text, at)
        at = _after(text, at + 1) if text[at] == "," else at
    return found if found and found[0] < found[1] else None


def _end_of_items(text: str, at: int) -> int:
    """Return where the last item of a list ends."""
    decode, end, at = json.JSONDecoder().raw_decode, at, _after(text, at)
    while text[at] != "]":
        end = decode(text, at)[1]
        at = _after(text, end)
        at = _after(text, at + 1) if text[at] == "," else at
    return end


def _after(text: str, at: int) -> int:
    """Return the place after white space."""
    found = _SPACE.match(text, at)
    assert found is not None
    return found.end()
