"""Segments of an episode, over random trees with several roots, rewritten histories, named calls and players: no more than its branches."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_gateway.ledger import EpisodeLedger, LedgerCall
from rlcore_gateway.trained import LedgerResult
from stub_engine import LIMITS
from test_ledger_laws import FAKE, RENDERER, Episode, check, said_in

from rlcore.api import Message

PLAYERS = ("", "white", "black")
STEPS = st.lists(
    st.tuples(
        st.sampled_from(PLAYERS),
        st.integers(0, 9),
        st.sampled_from(["go on", "go on", "rewrite", "compact", "other"]),
        st.sampled_from(["higher", "lower"]),
        st.text("ab1", max_size=3),
    ),
    min_size=1,
    max_size=14,
)
"""(who asks; which of its chats; how the chat goes on; the new message; the answer)"""


def played(steps: list[Any]) -> tuple[Episode, list[LedgerCall]]:
    """Play, as agents do that go on, rewrite an answer, keep only the first message and a summary, or begin another chat."""
    episode = Episode(EpisodeLedger("game", RENDERER, LIMITS))
    chats: dict[str, list[list[Message]]] = {player: [[Message(role="user", content="guess")]] for player in PLAYERS}
    calls = []
    for player, which, how, said, answer in steps:
        chat = list(chats[player][which % len(chats[player])])
        if how == "rewrite":
            chat = [Message(role="assistant", content="short") if message.role == "assistant" else message for message in chat]
        chat = chat[:1] if how == "compact" else [Message(role="system", content="help")] if how == "other" else chat
        chat.append(Message(role="user", content=said))
        calls.append(said_in(episode, *chat, answer=answer, player=player))
        chats[player].append([*chat, Message(role="assistant", content=answer)])
    return episode, calls


def leaves(result: LedgerResult, calls: list[LedgerCall]) -> set[str]:
    """The trained calls with a token at or above them, below which nothing trains: each needs a segment of its own."""
    trains = [call for call in calls if call.id in result.calls]
    inner = {above.id for call in trains for above in call.path()[:-1]}
    return {call.id for call in trains if call.id not in inner and any(len(one.sampled_ids) for one in call.path() if one in trains)}


@settings(max_examples=200, deadline=None)
@given(STEPS, st.data())
def test_there_are_as_few_segments_as_branches_that_train(steps: list[Any], data: st.DataObject) -> None:
    episode, calls = played(steps)
    named = data.draw(st.none() | st.lists(st.sampled_from([call.id for call in calls]), unique=True))
    result = episode.ledger.trained(named)
    check(result, {call.id: call for call in calls})
    if named is not None:
        assert sorted(result.calls) == sorted(named)
    assert len(result.segments) == len(result.branches) <= result.counts["forks"] + 1
    assert len(result.segments) <= len(leaves(result, calls))  # a leaf may share the segment of tokens above it
    by_id = {call.id: call for call in calls}
    assert [branch.player for branch in result.branches] == [by_id[branch.call].player for branch in result.branches]
    order = list(dict.fromkeys(call.player for call in calls))
    places = [order.index(by_id[name].player) for name in result.calls]
    assert places == sorted(places)
    for segment, branch in zip(result.segments, result.branches, strict=True):
        call = by_id[branch.call]
        whole = np.concatenate([call.context_ids(), call.sampled_ids])
        np.testing.assert_array_equal(np.concatenate([segment.context_ids, segment.token_ids]), whole)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_by_default_the_chats_with_the_first_message_of_each_player_train(steps: list[Any]) -> None:
    episode, calls = played(steps)
    result = episode.ledger.trained()
    trains = {call.id for call in calls if call.id in result.calls}
    for player in {call.player for call in calls}:
        own = [call for call in calls if call.player == player]
        sizes: dict[str, int] = {}
        first = {call.id: next(one.content for one in call.path()[0].messages if one.role == "user") for call in own}
        for call in own:
            sizes[first[call.id]] = sizes.get(first[call.id], 0) + len(call.sampled_ids)
        main = max(sizes, key=lambda chat: sizes[chat])
        assert {call.id for call in own if first[call.id] == main} == {call.id for call in own if call.id in trains}


def test_compaction_is_a_branch_if_the_first_message_stays() -> None:
    """An agent that replaces even that one begins another chat, which trains only if it is named."""
    episode = Episode()
    task, summary = Message(role="user", content="guess"), Message(role="user", content="a summary")
    said = [said_in(episode, task, answer="abab"), said_in(episode, task, summary, answer="ab"), said_in(episode, summary, answer="ab")]
    ledger, ids = episode.ledger, [call.id for call in said]
    assert ledger.trained().calls == tuple(ids[:2])
    assert ledger.trained().counts["untrained_tokens"] == len(FAKE.encode("ab"))
    assert ledger.trained(ids).calls == tuple(ids)
    assert len(ledger.trained(ids).segments) == 3 == ledger.trained(ids).counts["forks"] + 1
