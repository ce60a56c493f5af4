"""The part of an episode that trains: segments in which each sampled token of the chosen calls occurs exactly once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import TYPE_CHECKING

import numpy as np

from rlcore.api import Message, Segment, TokenDetails
from rlcore_gateway.chat_messages import key_of

if TYPE_CHECKING:
    from rlcore_gateway.ledger import LedgerCall

__all__ = ["LedgerBranch", "LedgerResult", "lines_of", "result_of"]


@dataclass(frozen=True, slots=True)
class LedgerBranch:
    """Which part of an episode a segment is: the id of its last call that trains, the player, and the number of the player's chat.

    A chat whose history is rewritten continues in another segment.
    """

    call: str
    player: str = ""
    chat: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerResult:
    """What an episode gives to training and to its rewards, player by player and chat by chat, in the order of their first calls.

    ``segments``: the tokens. ``policy_mask`` is True for the sampled tokens of the trained calls, each exactly once.
    ``branches``: one for each segment.
    ``messages``: the messages of each segment, in the order of the segments. A segment that begins a chat has all messages of the chat; one
        that forks from another segment has those after the fork. ``policy`` is True for the answers that train, and ``name`` is the
        player.
    ``turn_lengths``, ``calls``: the number of sampled tokens, and the id, of each answer that trains, in the same order.
    ``text``: the last answer that trains, in the order of the calls.
    ``counts``: figures of the episode. A history that n answered calls continue is n - 1 forks; the empty history, which roots continue, is
        one too. There are at most ``forks`` + 1 segments.
    ``exhausted``: the budget that was used up ("calls", "tokens", "context"), or "".
    """

    segments: tuple[Segment, ...]
    branches: tuple[LedgerBranch, ...]
    messages: tuple[Message, ...]
    turn_lengths: tuple[int, ...]
    calls: tuple[str, ...]
    text: str
    counts: Mapping[str, float]
    exhausted: str


def result_of(calls: Sequence[LedgerCall], named: Sequence[str] | None, counts: Mapping[str, float], exhausted: str) -> LedgerResult:
    """Return the result of the ``calls`` of an episode, which are in the order of arrival.

    :param named: the ids of the calls that train; None for those of the main root of each player and of the roots with the same first user
        message.
    :raises ValueError: an id is not that of an answered call.
    """
    answered = [call for call in calls if call.completion is not None]
    chats = _chats(answered)
    chosen = set(_main(answered, chats) if named is None else _named(answered, named))
    order = {chat: number for number, chat in enumerate(dict.fromkeys(chats.values()))}
    players = list(dict.fromkeys(call.player for call in answered))
    lines = sorted(lines_of(answered, chosen), key=lambda line: (players.index(line[0].player), order[chats[line[0]]]))
    sampled = [line for line in lines if any(len(call.sampled_ids) for call in line if call in chosen)]
    trains = [call for line in lines for call in line if call in chosen]
    tokens = sum(len(call.sampled_ids) for call in answered)
    trained = sum(len(call.sampled_ids) for call in trains)
    roots = [call for call in answered if call.parent is None]
    forks = sum(max(0, more - 1) for more in Counter(call.parent for call in answered).values())
    figures = {"calls": len(answered), "roots": len(roots), "forks": forks, "untrained_tokens": tokens - trained}
    return LedgerResult(
        segments=tuple(_segment(line, chosen) for line in sampled),
        branches=tuple(LedgerBranch(line[-1].id, line[0].player, order[chats[line[0]]]) for line in sampled),
        messages=tuple(message for line in lines for message in _messages(line, chosen)),
        turn_lengths=tuple(len(call.sampled_ids) for call in trains),
        calls=tuple(call.id for call in trains),
        text=_text(max(trains, key=lambda call: call.number, default=None)),
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


def _chats(calls: Sequence[LedgerCall]) -> dict[LedgerCall, tuple[str, bytes]]:
    """Return the chat of each call: those below roots of a player that share its first message of a user.

    A history that is rewritten at each turn is many roots of one chat.
    """
    chat_of: dict[LedgerCall, tuple[str, bytes]] = {}
    for call in calls:
        chat_of[call] = (call.player, _beginning(call)) if call.parent is None else chat_of[call.parent]
    return chat_of


def _main(calls: Sequence[LedgerCall], chats: Mapping[LedgerCall, tuple[str, bytes]]) -> list[LedgerCall]:
    """Return the calls of each player's chat with the most sampled tokens. Answers that no client has do not count."""
    calls = [call for call in calls if call.read]
    sizes: dict[str, Counter[tuple[str, bytes]]] = {}
    for call in calls:
        sizes.setdefault(call.player, Counter())[chats[call]] += len(call.sampled_ids)
    main = {player: max(of, key=lambda chat: of[chat]) for player, of in sizes.items()}
    return [call for call in calls if chats[call] == main[call.player]]


def _text(call: LedgerCall | None) -> str:
    return "" if call is None or call.answer is None else call.answer.content


def _beginning(root: LedgerCall) -> bytes:
    """Return the first message of a user that comes before any answer; the first message of all, if there is none."""
    before = takewhile(lambda message: message.role != "assistant", root.messages)
    asked = (message for message in before if message.role == "user")
    return key_of(next(asked, root.messages[0]))


def lines_of(calls: Sequence[LedgerCall], chosen: Collection[LedgerCall]) -> Iterator[list[LedgerCall]]:
    """Yield lines of calls, each the child of the one before it, so that each chosen call is in exactly one. The last one is chosen.

    What branches share is in the line of one of them, which does not depend on the order of their arrival.
    """
    needed: set[LedgerCall] = set()
    for call in reversed(calls):
        if call in chosen or any(child in needed for child in call.children):
            needed.add(call)
    todo = [call for call in reversed(calls) if call.parent is None and call in needed]
    while todo:
        line, following = [], [todo.pop()]
        while following:
            first = min(following, key=lambda call: (call.noise, call.number))
            line.append(first)
            todo += [call for call in reversed(following) if call is not first]
            following = [child for child in first.children if child in needed]
        yield line


def _messages(line: Sequence[LedgerCall], chosen: Collection[LedgerCall]) -> Iterator[Message]:
    for call in line:
        yield from call.messages
        if call.answer is not None:
            yield replace(call.answer, policy=call in chosen, name=call.player)


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
