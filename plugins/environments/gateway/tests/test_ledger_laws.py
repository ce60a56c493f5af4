"""Laws of the ledger, over random trees of calls."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rlcore_gateway import ledger as ledger_module
from rlcore_gateway.chat_messages import key_of
from rlcore_gateway.ledger import EpisodeLedger, EpisodeLimits, LedgerCall
from rlcore_gateway.refusal import Refusal
from rlcore_gateway.rendering import ChatRenderer
from rlcore_gateway.trained import LedgerBranch, LedgerResult
from stub_engine import LIMITS

from rlcore.api import Completion, FinishReason, Message
from rlcore.testing import FakeTokenizer

FAKE = FakeTokenizer()
RENDERER = ChatRenderer(FAKE)
ANSWERS = st.text("ab1", max_size=3)
STEPS = st.lists(
    st.tuples(st.integers(-1, 20), st.sampled_from(["higher", "lower"]), ANSWERS, st.booleans(), st.booleans()), min_size=1, max_size=12
)
"""(the call that is extended, -1 for a new chat; the new message; the answer; with an end token; cancelled)"""


@dataclass
class Episode:
    """A ledger, and what a client has said before each call."""

    ledger: EpisodeLedger = field(default_factory=lambda: EpisodeLedger("game", RENDERER, LIMITS))
    chats: list[list[Message]] = field(default_factory=list)
    calls: list[LedgerCall] = field(default_factory=list)
    sampled: int = 0

    def play(self, steps: list[Any]) -> None:
        for place, said, answer, ended, cancelled in steps:
            chat = self.chats[place % len(self.chats)] if self.chats and place >= 0 else []
            messages = [*chat, Message(role="user", content=said)]
            call = self.ledger.begin(messages)
            if cancelled:
                self.ledger.drop(call)
                continue
            ids = np.array([*FAKE.encode(answer), *([0] if ended else [])], np.int32)
            marks = -(np.arange(len(ids)) + self.sampled + 1) / 4096  # each sampled token has a log probability of its own
            self.sampled += len(ids)
            completion = Completion(
                request_id=call.id, token_ids=ids, logprobs=marks, versions=np.full(len(ids), len(self.calls)), finish=FinishReason.STOP
            )
            reply = Message(role="assistant", content=answer)
            self.ledger.finish(call, completion, reply, reply)
            call.delivered = True  # the next equal request is another sample, not a retry
            self.calls.append(call)
            self.chats.append([*messages, reply])


def check(result: LedgerResult, calls: dict[str, LedgerCall]) -> None:
    """Each sampled token of the trained calls occurs once, after the context in which it was sampled."""
    rest = list(zip(result.calls, result.turn_lengths, strict=True))
    seen = 0
    for segment in result.segments:
        whole, start = np.concatenate([segment.context_ids, segment.token_ids]), len(segment.context_ids)
        places = np.flatnonzero(segment.policy_mask)
        while len(places):
            name, length = rest[seen]
            seen += 1
            said, run = calls[name].completion, places[:length]
            assert said is not None
            assert len(said.token_ids) == length
            if not length:
                continue
            np.testing.assert_array_equal(run, np.arange(run[0], run[0] + length))
            np.testing.assert_array_equal(whole[: start + run[0]], calls[name].context_ids())
            for field_name in ("token_ids", "logprobs", "versions"):
                np.testing.assert_array_equal(getattr(segment, field_name)[run], getattr(said, field_name))
            places = places[length:]
        assert segment.policy_mask.any()
    assert all(length == 0 for _, length in rest[seen:])
    assert len(set(result.calls)) == len(result.calls)
    answers = [message.content for message in result.messages if message.policy]
    assert answers == [FAKE.decode(calls[name].sampled_ids.tolist()) for name in result.calls]


@settings(max_examples=300, deadline=None)
@given(STEPS, st.data())
def test_each_sampled_token_of_what_trains_is_there_once_and_no_other(steps: list[Any], data: st.DataObject) -> None:
    episode = Episode()
    episode.play(steps)
    calls = {call.id: call for call in episode.calls}
    named = data.draw(st.lists(st.sampled_from(sorted(calls)), unique=True)) if calls else []
    result = episode.ledger.trained(named)
    check(result, calls)
    assert len(result.branches) == len(result.segments) <= result.counts["forks"] + 1
    assert sorted(result.calls) == sorted(named)
    assert result.counts["untrained_tokens"] == episode.sampled - sum(result.turn_lengths)
    whole = episode.ledger.trained(list(calls))
    check(whole, calls)
    assert sum(result.turn_lengths) <= sum(whole.turn_lengths) == episode.sampled
    assert whole.counts["calls"] == len(calls)


@settings(max_examples=200, deadline=None)
@given(STEPS)
def test_by_default_the_main_root_and_its_like_train(steps: list[Any]) -> None:
    episode = Episode()
    episode.play(steps)
    calls = {call.id: call for call in episode.calls}
    result = episode.ledger.trained()
    check(result, calls)
    if calls:
        said = {name: call.path()[0].messages for name, call in calls.items()}  # a chat may have several roots
        sizes = {chat: sum(len(call.sampled_ids) for name, call in calls.items() if said[name] == chat) for chat in said.values()}
        assert set(result.calls) == {name for name in calls if said[name] == max(sizes, key=lambda chat: sizes[chat])}


@settings(max_examples=100, deadline=None)
@given(STEPS)
def test_each_context_is_the_chat_as_it_was_sampled(steps: list[Any]) -> None:
    """FakeTokenizer reads an answer back as it was sampled, apart from end tokens, so the rendered chat is a second source."""
    episode = Episode()
    episode.play(steps)
    for call, chat in zip(episode.calls, episode.chats, strict=True):
        context = [token for token in call.context_ids().tolist() if token != 0]
        assert context == FAKE.render(chat[:-1]).tolist()


@settings(max_examples=100, deadline=None)
@given(STEPS, st.randoms(use_true_random=False))
def test_the_random_stream_does_not_depend_on_the_order_of_chats(steps: list[Any], random: Any) -> None:
    """Chats that run side by side may arrive in any order: what each of them draws is the same."""
    texts = sorted({said for _, said, _, _, _ in steps} | {"other"})
    first, second = EpisodeLedger("a", RENDERER, LIMITS), EpisodeLedger("b", RENDERER, LIMITS)
    order = [(text, sample) for text in texts for sample in range(2)]
    streams = [{first.begin([Message(role="user", content=text)]).noise for text, _ in order}]
    random.shuffle(order)
    streams.append({second.begin([Message(role="user", content=text)]).noise for text, _ in order})
    assert streams[0] == streams[1]
    assert len(streams[0]) == len(order)


def test_a_call_that_was_not_answered_cannot_be_named() -> None:
    episode = Episode()
    call = episode.ledger.begin([Message(role="user", content="higher")])
    for name in (call.id, "chatcmpl-other-1"):
        with pytest.raises(ValueError, match="names the call 'chatcmpl-"):
            episode.ledger.trained([name])


def test_only_what_a_call_added_is_kept() -> None:
    episode = Episode()
    episode.play([(turn - 1, "higher", "ab", True, False) for turn in range(200)])
    kept = sum(len(call.tail_ids) + len(call.sampled_ids) for call in episode.ledger.calls)
    last = episode.ledger.calls[-1]
    assert len(episode.ledger.roots) == 1
    assert kept == len(last.context_ids()) + len(last.sampled_ids)


@pytest.mark.parametrize(
    ("delivered", "extended", "retry", "same"),
    [
        (False, False, False, True),
        (True, False, False, False),
        (True, False, True, True),
        (False, True, True, False),
    ],
)
def test_a_request_that_is_repeated_because_its_answer_was_lost(delivered: bool, extended: bool, retry: bool, same: bool) -> None:
    episode = Episode()
    episode.play([(-1, "higher", "ab", True, False)])
    (first,) = episode.calls
    first.delivered = delivered
    if extended:
        episode.ledger.begin([*episode.chats[0], Message(role="user", content="lower")])
    assert (episode.ledger.begin([Message(role="user", content="higher")], retry=retry) is first) == same
    assert episode.ledger.counts["retries"] == same


def test_a_retry_with_another_limit_is_another_request() -> None:
    ledger = EpisodeLedger("game", RENDERER, LIMITS)
    messages = [Message(role="user", content="higher")]
    first = ledger.begin(messages, max_tokens=5)
    assert ledger.begin(messages, max_tokens=6, retry=True) is not first
    assert ledger.begin(messages, max_tokens=5, sampling=(("stop",),), retry=True) is not first
    assert ledger.begin(messages, max_tokens=5, retry=True) is first


def test_equal_answers_are_continued_one_after_the_other() -> None:
    """Two samples of a prompt that are equal, each with a next request: neither chat gets both."""
    episode = Episode()
    episode.play([(-1, "higher", "ab", True, False)] * 2 + [(0, "lower", "1", True, False), (1, "lower", "1", True, False)])
    first, second, *later = episode.calls
    assert [call.parent for call in later] == [first, second]


def test_masked_tokens_have_the_version_before_them_and_an_empty_answer_changes_nothing() -> None:
    episode = Episode()
    episode.play([(-1, "a", "ab", False, False), (0, "b", "ab", False, False), (1, "c", "", False, False), (2, "d", "1", False, False)])
    (segment,) = episode.ledger.trained().segments
    assert segment.versions.tolist() == [0, 0, *[0] * 3, 1, 1, *[1] * 3, *[1] * 3, 3]


def test_a_completion_that_comes_after_its_call_was_dropped_is_forgotten() -> None:
    episode = Episode()
    messages = [Message(role="user", content="higher")]
    call, reply = episode.ledger.begin(messages), Message(role="assistant", content="a")
    episode.ledger.drop(call)
    said = Completion(request_id=call.id, token_ids=[5], logprobs=[0.0], versions=[0], finish=FinishReason.STOP)
    episode.ledger.finish(call, said, reply, reply)
    assert episode.ledger.begin([*messages, reply, *messages]).parent is None
    assert episode.ledger.trained().calls == ()


def test_a_turn_renders_one_line_whatever_was_said_before() -> None:
    rendered: list[int] = []

    class Counting(FakeTokenizer):
        def render(self, messages: Any, tools: Any = ()) -> np.ndarray:
            rendered.append(len(messages))
            return super().render(messages, tools)

    episode = Episode(EpisodeLedger("game", ChatRenderer(Counting()), LIMITS))
    episode.play([(turn - 1, "higher", "ab", True, False) for turn in range(30)])
    assert rendered == [1, *[3] * (5 + 28)]  # a line, an answer and the new message; first with two answers, to see where one ends


def said_in(episode: Episode, *messages: Message, answer: str = "a", player: str = "") -> LedgerCall:
    """Make a call with these messages, and answer it."""
    call = episode.ledger.begin(messages, player=player)
    ids = np.array(FAKE.encode(answer), np.int32)
    zeros = np.zeros(len(ids))
    completion = Completion(request_id=call.id, token_ids=ids, logprobs=zeros, versions=zeros, finish=FinishReason.STOP)
    reply = Message(role="assistant", content=answer)
    episode.ledger.finish(call, completion, reply, reply)
    call.delivered = True
    return call


@pytest.mark.parametrize("first", [Message(role="user", content="guess"), Message(role="system", content="guess")])
def test_a_chat_whose_history_is_rewritten_at_each_turn_is_one_chat(first: Message) -> None:
    episode, chat = Episode(), [first]
    own = []
    for turn in range(4):
        own.append(said_in(episode, *chat, answer="ab"))
        chat += [Message(role="assistant", content=f"shorter {turn}"), Message(role="user", content=f"hint {turn}")]
    said_in(episode, Message(role="user", content="a sub-agent"), answer="abab")
    assert len({call.parent for call in own}) == 1  # each is a root of its own
    assert episode.ledger.trained().calls == tuple(call.id for call in own)


def test_a_retry_repeats_its_own_request_and_not_an_equal_one() -> None:
    episode, asked = Episode(), [Message(role="user", content="guess")]
    mine, other = episode.ledger.begin(asked), episode.ledger.begin(asked)
    assert mine is not other
    episode.ledger.drop(mine)
    again = episode.ledger.begin(asked, retry=True)
    assert again is not other
    assert again.noise == mine.noise
    assert episode.ledger.begin(asked, retry=True) in (again, other)  # nothing was cancelled: the connection alone broke


def test_equal_requests_that_are_repeated_get_their_answers_in_the_order_of_arrival() -> None:
    episode, asked = Episode(), [Message(role="user", content="guess")]
    first, second = said_in(episode, *asked), said_in(episode, *asked)
    assert [episode.ledger.begin(asked, retry=True) for _ in range(3)] == [first, second, first]
    second.delivered = False
    assert episode.ledger.begin(asked, retry=True) is second


def test_an_equal_request_gets_no_answer_that_is_on_its_way_to_another() -> None:
    episode, asked = Episode(), [Message(role="user", content="guess")]
    first = said_in(episode, *asked)
    first.delivered, first.awaited = False, 1
    assert episode.ledger.begin(asked) is not first
    first.awaited = 0
    assert episode.ledger.begin(asked) is first


def test_an_answer_that_no_client_has_trains_only_if_it_is_named_and_is_not_continued_for_an_equal_one() -> None:
    episode, asked = Episode(), [Message(role="user", content="guess")]
    lost, mine = said_in(episode, *asked), said_in(episode, *asked)
    lost.delivered = False
    assert episode.ledger.trained().calls == (mine.id,)
    assert episode.ledger.trained([lost.id]).calls == (lost.id,)
    child = said_in(episode, *asked, Message(role="assistant", content="a"), Message(role="user", content="go"))
    assert child.parent is mine
    assert episode.ledger.trained().calls == (mine.id, child.id)


def test_an_answer_that_was_extended_once_is_not_sampled_again_under_its_id() -> None:
    episode, asked = Episode(), [Message(role="user", content="guess")]
    first = said_in(episode, *asked)
    child = episode.ledger.begin([*asked, Message(role="assistant", content="a"), Message(role="user", content="go")])
    assert child.parent is first
    episode.ledger.drop(child)
    assert episode.ledger.begin(asked, retry=True) is not first


def test_a_refusal_that_the_agent_got_over_is_not_how_its_episode_ended() -> None:
    episode = Episode(EpisodeLedger("game", RENDERER, EpisodeLimits(tokens=100, context=20)))
    with pytest.raises(Refusal):
        episode.ledger.begin([Message(role="user", content="a" * 40)])
    assert episode.ledger.refused
    said_in(episode, Message(role="user", content="a"))
    assert not episode.ledger.refused


def test_players_share_a_budget_and_no_call() -> None:
    episode = Episode(EpisodeLedger("game", RENDERER, EpisodeLimits(tokens=1000, context=1000, calls=5)))
    asked = Message(role="user", content="guess")
    said = [said_in(episode, asked, answer="a" * size, player=player) for size, player in ((2, "white"), (1, "black"), (1, ""))]
    assert len({call.chain for call in said}) == 3
    assert len({call.noise for call in said}) == 3
    reply, go = Message(role="assistant", content="aa"), Message(role="user", content="go")
    own = said_in(episode, asked, reply, go, player="white")
    other = said_in(episode, asked, reply, go, player="black")  # black never said this
    assert [own.parent, other.parent] == [said[0], None]
    with pytest.raises(Refusal, match="budget of 5 calls"):
        episode.ledger.begin([asked], player="red")
    result = episode.ledger.trained()
    expected = [("white", own), ("black", said[1]), ("black", other), ("", said[2])]
    assert result.branches == tuple(LedgerBranch(call.id, player) for player, call in expected)
    assert result.calls == (said[0].id, own.id, said[1].id, other.id, said[2].id)


def test_the_main_root_is_that_of_each_player() -> None:
    episode = Episode()
    for player in ("white", "black"):
        said_in(episode, Message(role="user", content="title"), player=player)
    main = [said_in(episode, Message(role="user", content="guess"), answer="ab", player=player) for player in ("black", "white")]
    assert episode.ledger.trained().branches == (LedgerBranch(main[1].id, "white"), LedgerBranch(main[0].id, "black"))


def test_tokens_continue_the_calls_of_their_player() -> None:
    episode = Episode()
    first = said_in(episode, Message(role="user", content="guess"), player="white")
    ledger = episode.ledger
    whole = np.concatenate([first.context_ids(), first.sampled_ids, first.sampled_ids])
    calls = [ledger.begin_ids(whole, lambda ids: [Message(role="user", content="go")], player=player) for player in ("white", "black")]
    assert [call.parent for call in calls] == [first, None]
    assert calls[0].noise != calls[1].noise


def test_an_answer_has_the_name_of_its_player() -> None:
    episode = Episode()
    for player in ("white", ""):
        said_in(episode, Message(role="user", content="guess"), answer="ab", player=player)
    assert [(one.role, one.name) for one in episode.ledger.trained().messages] == [
        ("user", ""),
        ("assistant", "white"),
        ("user", ""),
        ("assistant", ""),
    ]


def test_messages_are_hashed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    hashed: list[Message] = []
    monkeypatch.setattr(ledger_module, "key_of", lambda message: [hashed.append(message), key_of(message)][1])
    episode, chat = Episode(), [Message(role="user", content="guess")]
    for turn in range(20):
        call = said_in(episode, *chat, answer="a")
        assert (call.parent is None) == (turn == 0)
        chat += [Message(role="assistant", content="a"), Message(role="user", content="go")]
    assert len(hashed) == 39 + 20  # each message of a request once, and each answer as it was sent
    for number in range(50):
        episode.ledger.begin([Message(role="user", content=f"{number}")])
    assert len(episode.ledger._hashed) == 8
