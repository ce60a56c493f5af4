"""Players of one episode never share a call, and their tokens train together, each player's in turn."""

from __future__ import annotations

import numpy as np
import pytest
from rlcore_gateway.hosted_model import HostedModel
from rlcore_gateway.ledger import EpisodeLedger, LedgerCall
from rlcore_gateway.rendering import ChatRenderer
from rlcore_gateway.trained import LedgerBranch
from stub_engine import LIMITS

from rlcore.api import Completion, FinishReason, Message
from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()


def asked(ledger: EpisodeLedger, player: str, *texts: str) -> LedgerCall:
    """A call of a player, whose answer is "a"; ``texts`` are said by the user and the player in turn."""
    roles = ("user", "assistant")
    call = ledger.begin([Message(role=roles[place % 2], content=text) for place, text in enumerate(texts)], player=player)
    ids = np.array(FAKE.encode("a"), np.int32)
    said = Completion(request_id=call.id, token_ids=ids, logprobs=np.zeros(1) - 0.5, versions=np.zeros(1), finish=FinishReason.STOP)
    answer = Message(role="assistant", content="a")
    ledger.finish(call, said, answer, answer)
    call.delivered = True
    return call


def test_equal_chats_of_two_players_are_two_chats() -> None:
    ledger = EpisodeLedger("game", ChatRenderer(FAKE), LIMITS)
    o1, x1 = asked(ledger, "o", "move"), asked(ledger, "x", "move")
    x2, o2 = asked(ledger, "x", "move", "a", "again"), asked(ledger, "o", "move", "a", "again")
    asked(ledger, "x", "title")
    assert (x2.parent, o2.parent) == (x1, o1)
    assert len({call.noise for call in (o1, x1)}) == 2
    result = ledger.trained()
    assert result.branches == (LedgerBranch(o2.id, "o"), LedgerBranch(x2.id, "x"))
    assert result.calls == (o1.id, o2.id, x1.id, x2.id)
    assert result.turn_lengths == (1, 1, 1, 1)
    assert result.counts["untrained_tokens"] == 1


def test_a_chat_that_one_player_names_trains_alone() -> None:
    ledger = EpisodeLedger("game", ChatRenderer(FAKE), LIMITS)
    asked(ledger, "o", "move")
    x1 = asked(ledger, "x", "move")
    assert ledger.trained([x1.id]).branches == (LedgerBranch(x1.id, "x"),)


def test_tokens_of_one_player_are_no_history_of_another() -> None:
    ledger = EpisodeLedger("game", ChatRenderer(FAKE), LIMITS)
    first = asked(ledger, "o", "move")
    ids = np.concatenate([first.context_ids(), first.sampled_ids])
    assert ledger.begin_ids(ids, lambda _: [], player="x").parent is None
    assert ledger.begin_ids(ids, lambda _: [], player="o").parent is first


def test_a_player_that_there_is_not_is_refused_with_the_names_that_there_are() -> None:
    said = {"model": "m", "base_url": "http://h/v1", "key": "k"}
    with pytest.raises(KeyError, match="there is no player 'blck'; the players of the run are white, black"):
        HostedModel("m", "http://h/v1", "k", {"white": said, "black": said}).players["blck"]
    with pytest.raises(KeyError, match=r"there is no player 'black'; the run has no \[sampling.options.players\]"):
        HostedModel("m", "http://h/v1", "k").players["black"]
