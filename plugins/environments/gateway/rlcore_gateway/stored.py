"""Responses that a client may continue or fetch by their ids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from rlcore.api import Message
from rlcore_gateway.api_dialect import PolicyAnswer, PolicyRequest
from rlcore_gateway.ledger import LedgerCall
from rlcore_gateway.refusal import Refusal

__all__ = ["StoredResponses"]


@dataclass(frozen=True, slots=True)
class _Stored:
    """For an answer that is not in the ledger: ``own``, the messages of its request, and ``before``, the response which that continues."""

    answer: PolicyAnswer
    asked: PolicyRequest
    own: tuple[Message, ...] = ()
    before: _Stored | None = None


class StoredResponses:
    """The responses of a player in an episode. The ledger has their messages, so that each message is kept once.

    :param sent: each answer of the ledger as the client received it.
    """

    def __init__(self, sent: Mapping[LedgerCall, Message]) -> None:
        self._sent = sent
        self._stored: dict[str, _Stored] = {}

    def add(self, answer: PolicyAnswer, asked: PolicyRequest) -> None:
        """Keep an answer if its request wants that. The request is as the client sent it, and not ``continued``."""
        if asked.store:
            echo = {**asked.echo, "instructions": None, "tools": []}  # both are long, and equal in all requests of an agent
            own, before = (asked.messages, self._stored.get(asked.previous)) if answer.call is None else ((), None)
            self._stored[answer.id] = _Stored(answer, replace(asked, messages=(), tools=(), echo=echo), own, before)

    def get(self, name: str, status: int = 404) -> tuple[PolicyAnswer, PolicyRequest]:
        """Return an answer, and its request without messages and tools. Raises Refusal if there is none of this id."""
        found = self._named(name, status)
        return found.answer, found.asked

    def delete(self, name: str) -> None:
        """Forget a response. Raises Refusal if there is none of this id."""
        self._named(name, 404)
        del self._stored[name]

    def continued(self, asked: PolicyRequest) -> PolicyRequest:
        """Return a request with all messages, if it has only those after an earlier response. Instructions are those of the new request."""
        if not asked.previous:
            return asked
        found = self._named(asked.previous, 400)
        said: list[Sequence[Message]] = []  # the latest first
        last: _Stored | None = found
        while last is not None and last.answer.call is None:
            said.append((*last.own[int(last.asked.instructions) :], last.answer.sent))
            last = last.before
        after = None if last is None else last.answer.call
        if last is not None and after is not None:
            calls = [message for call in after.path() for message in (*call.messages, self._sent[call])]
            said.append(calls[int(last.asked.instructions) :])
        own = int(asked.instructions)
        messages = (*asked.messages[:own], *chain.from_iterable(reversed(said)), *asked.messages[own:])
        return replace(asked, messages=messages, after=after)

    def _named(self, name: str, status: int) -> _Stored:
        if name in self._stored:
            return self._stored[name]
        raise Refusal(
            f"the response {name!r:.80} is not stored for this player of the episode; send the whole input, or store the response",
            status=status,
            code="previous_response_not_found",
            param="previous_response_id",
        )
