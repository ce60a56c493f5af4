"""The part of an episode that trains: segments in which each sampled token of the chosen calls occurs exactly once."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from rlcore.api import Message, Segment, TokenDetails
from rlcore_gateway.chat_messages import key_of

if TYPE_CHECKING:
    from rlcore_gateway.ledger import LedgerCall

__all__ = ["LedgerResult", "lines_of", "result_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerResult:
    """What an episode gives to training and to its rewards.

    ``segments``: the tokens. ``policy_mask`` is True for the sampled tokens of the trained calls, each exactly once.
    ``messages``: the messages of each segment, in the order of the segments. A segment that begins a chat has all messages of the chat; one
        that forks from another segment has those after the fork. ``policy`` is True for the answers that train.
    ``turn_lengths``, ``calls``: the number of sampled tokens, and the id, of each answer that trains, in the same order.
    ``counts``: figures of the episode. ``exhausted``: the budget that was used up ("calls", "tokens", "context"), or "".
    """

    segments: tuple[Segment, ...]
    messages: tuple[Message, ...]
    turn_lengths: tuple[int, ...]
    calls: tuple[str, ...]
    counts: Mapping[str, float]
    exhausted: str


def result_of(calls: Sequence[LedgerCall], named: Sequence[str] | None, counts: Mapping[str, float], exhausted: str) -> LedgerResult:
    """Return the result of the ``calls`` of an episode, which are in the order of arrival.

    :param named: the ids of the calls that train; None for those of the main root and of the roots with the same first user message.
    :raises ValueError: an id is not that of an answered call.
    """
    answered = [call for call in calls if call.completion is not None]
    chosen = set(_main(answered) if named is None else _named(answered, named))
    lines = list(lines_of(answered, chosen))
    trains = [call for line in lines for call in line if call in chosen]
    tokens = sum(len(call.sampled_ids) for call in answered)
    trained = sum(len(call.sampled_ids) for call in trains)
    roots = [call for call in answered if call.parent is None]
    forks = sum(max(0, len(call.children) - 1) for call in calls) + max(0, len(roots) - 1)
    figures = {"calls": len(answered), "roots": len(roots), "forks": forks, "untrained_tokens": tokens - trained}
    return LedgerResult(
        segments=tuple(_segment(line, chosen) for line in lines if any(len(call.sampled_ids) for call in line if call in chosen)),
        messages=tuple(message for line in lines for message in _messages(line, chosen)),
        turn_lengths=tuple(len(call.sampled_ids) for call in trains),
        calls=tuple(call.id for call in trains),
        counts={name: float(value) for name, value in {**counts, **figures}.items()},
        exhausted=exhausted,
    )


def _named(calls: Sequence[LedgerCall], named: Sequence[str]) -> list[LedgerCall]:
    by_id = {call.id: call for call in calls}
    if unknown := [name for name in named if name not in by_id]:
        raise ValueError(
            f"the environment names the call {unknown[0]!r}, which this episode did not answer; name calls by the ids of the responses"
        )
    return [by_id[name] for name in named]


def _main(calls: Sequence[LedgerCall]) -> list[LedgerCall]:
    """Return the calls of the chat with the most sampled tokens: those below roots that share its first message of a user."""
    root_of: dict[LedgerCall, LedgerCall] = {}
    sizes: dict[bytes, int] = {}  # by chat: a history that is rewritten at each turn is many roots of one chat
    for call in calls:
        root = root_of[call] = call if call.parent is None else root_of[call.parent]
        sizes[_beginning(root)] = sizes.get(_beginning(root), 0) + len(call.sampled_ids)
    main = max(sizes, key=lambda chat: sizes[chat], default=b"")
    return [call for call in calls if _beginning(root_of[call]) == main]


def _beginning(root: LedgerCall) -> bytes:
    """Return the first message of a user that comes before any answer; the first message of all, if there is none."""
    before = takewhile(lambda message: message.role != "assistant", root.messages)
    asked = (message for message in before if message.role == "user")
    return key_of(next(asked, root.messages[0]))


def lines_of(calls: Sequence[LedgerCall], chosen: Collection[LedgerCall]) -> Iterator[list[LedgerCall]]:
    """Yield lines of calls, each the child of the one before it, so that each chosen call is in exactly one. The last one is chosen."""
    needed: set[LedgerCall] = set()
    for call in reversed(calls):
        if call in chosen or any(child in needed for child in call.children):
            needed.add(call)
    todo = [call for call in reversed(calls) if call.parent is None and call in needed]
    while todo:
        line, following = [], [todo.pop()]
        while following:
            line.append(following[0])
            todo += following[:0:-1]
            following = [child for child in line[-1].children if child in needed]
        yield line


def _messages(line: Sequence[LedgerCall], chosen: Collection[LedgerCall]) -> Iterator[Message]:
    for call in line:
        yield from call.messages
        if call.answer is not None:
            yield replace(call.answer, policy=call in chosen)


def _segment(line: Sequence[LedgerCall], chosen: Collection[LedgerCall]) -> Segment:
    """Return the segment of a line. Everything before its first chosen call is context."""
    first = next(place for place, call in enumerate(line) if call in chosen)
    ids, logprobs, versions, mask = [], [], [], []
    details: list[tuple[TokenDetails | None, int]] = []
    version = 0
    for place, call in enumerate(line[first:]):
        tail, said = call.tail_ids if place else call.tail_ids[:0], call.completion
        assert said is not None  # only answered calls are in a line
        ids += [tail, said.token_ids]
        logprobs += [np.zeros(len(tail)), said.logprobs]
        versions += [np.full(len(tail), version), said.versions]
        mask += [np.zeros(len(tail), bool), np.full(len(said.token_ids), call in chosen)]
        details += [(None, len(tail)), (said.details, len(said.token_ids))]
        version = int(said.versions[-1]) if len(said.versions) else version
    return Segment(
        context_ids=line[first].context_ids(),
        token_ids=np.concatenate(ids),
        logprobs=np.concatenate(logprobs),
        versions=np.concatenate(versions),
        policy_mask=np.concatenate(mask),
        details=TokenDetails.joined(details),
    )
