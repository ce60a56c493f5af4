"""The rules about conversations catch planted bugs, and leave right conversations alone."""

from __future__ import annotations

import random
from collections.abc import Generator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from rlcore.api import RunError
from rlcore.api.conversations import Conversation, ConversationSteps, Dialogue, Message, Transcript, Turn
from rlcore.contracts.types import Completion
from rlcore.roles.single_turn import SingleTurn
from rlcore.testing import ConversationSuite
from rlcore.testing.conversations.fake_conversation import FakeConversation, FakeConversationOptions

AGAIN = Message(role="user", content="again")


class TestFakeConversation(ConversationSuite):
    def make(self) -> FakeConversation:
        return FakeConversation(FakeConversationOptions(rounds=3))


class TestSingleTurn(ConversationSuite):
    def make(self) -> SingleTurn:
        return SingleTurn()


class Sound(Conversation):
    """Two turns, as they should be: what the bugs below spoil."""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        yield from transcript.ask()
        if transcript.say(AGAIN):
            yield from transcript.ask()
        return transcript.dialogue()


class NeverEnds(Conversation):
    """Asks for as long as there is an answer."""

    max_turns = 5

    def converse(self, transcript: Transcript) -> ConversationSteps:
        while transcript.say(Message(role="user", content="")):
            yield from transcript.ask(1)
        return transcript.dialogue()


class TokenizesAgain(Conversation):
    """The second context is the text of the first turn, rendered."""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield Turn(transcript.context_ids, transcript.sampling)
        messages = [Message(role="assistant", content=transcript.tokenizer.decode(said.token_ids.tolist()), policy=True), AGAIN]
        rendered = transcript.tokenizer.render([*transcript.prompt.messages, *messages])
        room = len(transcript.context_ids) + transcript.sampling.max_new_tokens - len(rendered)
        more = yield Turn(rendered, replace(transcript.sampling, max_new_tokens=room))
        segments = [segment(transcript.context_ids, said), segment(rendered, more)]
        messages.append(Message(role="assistant", content=transcript.tokenizer.decode(more.token_ids.tolist()), policy=True))
        return Dialogue(segments=tuple(segments), messages=tuple(messages))


def segment(context: np.ndarray, said: Completion) -> Any:
    from rlcore.api import Segment

    mask = np.ones(len(said.token_ids), np.bool_)
    return Segment(context_ids=context, token_ids=said.token_ids, logprobs=said.logprobs, versions=said.versions, policy_mask=mask)


class Spoils(Sound):
    """Changes the one segment of a sound rollout."""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield from super().converse(transcript)
        return replace(said, segments=(self.spoilt(said.segments[0]),), turn_lengths=())

    def spoilt(self, one: Any) -> Any:
        raise NotImplementedError


class TrainsOnTheUser(Spoils):
    def spoilt(self, one: Any) -> Any:
        return replace(one, policy_mask=np.ones(len(one.token_ids), np.bool_))


class LeavesTheFirstAnswerOut(Spoils):
    def spoilt(self, one: Any) -> Any:
        return replace(one, policy_mask=one.policy_mask & (np.arange(len(one.token_ids)) > 2))


class ForgetsVersions(Spoils):
    def spoilt(self, one: Any) -> Any:
        return replace(one, versions=np.zeros(len(one.token_ids)))


class InventsLogprobs(Spoils):
    def spoilt(self, one: Any) -> Any:
        return replace(one, logprobs=np.zeros(len(one.token_ids)))


class TrainsUnderAnotherPrompt(Spoils):
    def spoilt(self, one: Any) -> Any:
        return replace(one, context_ids=one.context_ids[1:])


class TellsWhatNobodySaid(Sound):
    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield from super().converse(transcript)
        return replace(said, messages=tuple(replace(one, content="well") if one.policy else one for one in said.messages))


class LeavesTheRestOut(Sound):
    """Inserts a text, and its message ends before what the policy wrote after it."""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        yield from transcript.ask(stop=("b",))
        if transcript.insert("!"):
            yield from transcript.ask()
        said = transcript.dialogue()
        return replace(said, messages=tuple(replace(one, content=one.content.split("!")[0]) for one in said.messages))


class TellsWhatNobodyHeard(Sound):
    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield from super().converse(transcript)
        return replace(said, messages=(*said.messages, Message(role="user", content="thanks")))


class KeepsItOnSelf(Sound):
    """The number of answers is counted for all rollouts together."""

    count = 0

    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield from super().converse(transcript)
        self.count += 1
        return replace(said, extra={"count": self.count})


class SharesAcrossRollouts(Sound):
    """The first answer is kept where the next rollout keeps its own."""

    first = ""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        self.first = yield from transcript.ask()
        if transcript.say(AGAIN):
            yield from transcript.ask()
        return transcript.dialogue(extra={"first": self.first})


class DrawsFreely(Sound):
    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield from super().converse(transcript)
        return replace(said, extra={"luck": random.random()})


class NeedsANumber(Sound):
    def converse(self, transcript: Transcript) -> ConversationSteps:
        guess = yield from transcript.ask()
        int(guess, 36)
        return transcript.dialogue()


class AsksWithoutRoom(Sound):
    def converse(self, transcript: Transcript) -> ConversationSteps:
        yield from transcript.ask()
        transcript.say(AGAIN)
        yield from transcript.ask()
        return transcript.dialogue()


class EndsWithoutAWord(Sound):
    """Where there is no room it ends as if that were the end."""

    def converse(self, transcript: Transcript) -> ConversationSteps:
        said = yield from super().converse(transcript)
        return replace(said, finish=None)


class IsNoGenerator(Sound):
    def converse(self, transcript: Transcript) -> Generator[Turn, Completion, Dialogue]:
        return None  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("bug", "rule", "says"),
    [
        (NeverEnds, "test_every_rollout_keeps_the_rules", "the conversation broke a rule .* more than max_turns = 5 turns"),
        (TokenizesAgain, "test_each_context_goes_on_from_the_one_before", "turn 2 does not begin with turn 1"),
        (TrainsOnTheUser, "test_every_rollout_keeps_the_rules", "policy_mask is True at a token that the policy did not sample"),
        (LeavesTheFirstAnswerOut, "test_what_the_policy_wrote_trains_and_nothing_else", "token_ids where policy_mask is True"),
        (ForgetsVersions, "test_what_the_policy_wrote_trains_and_nothing_else", "versions where policy_mask is True"),
        (InventsLogprobs, "test_every_rollout_keeps_the_rules", "policy_mask is True"),
        (TrainsUnderAnotherPrompt, "test_segments_hold_what_the_engine_was_asked", "no segment begins with the context"),
        (TellsWhatNobodySaid, "test_messages_tell_what_was_said", "the policy's messages are"),
        (LeavesTheRestOut, "test_messages_tell_what_was_said", r"the policy's messages are \['ab'\], and it said \['ab', 'c'\]"),
        (TellsWhatNobodyHeard, "test_messages_tell_what_was_said", "stand in no segment"),
        (KeepsItOnSelf, "test_a_rollout_depends_on_its_answers_alone", "the second time"),
        (SharesAcrossRollouts, "test_a_rollout_depends_on_its_answers_alone", "under way changes this one"),
        (DrawsFreely, "test_a_rollout_depends_on_its_answers_alone", "the second time|changes this one"),
        (NeedsANumber, "test_any_answer_will_do", "ValueError"),
        (AsksWithoutRoom, "test_little_room_is_no_accident", "there is room for"),
        (EndsWithoutAWord, "test_little_room_is_no_accident", "not marked as cut"),
        (IsNoGenerator, "test_every_rollout_keeps_the_rules", "must be a generator"),
    ],
)
def test_the_suite_catches_the_bug(bug: type[Conversation], rule: str, says: str) -> None:
    class Suite(ConversationSuite):
        scripts = (("a", "b"), ("c", "d"), ("abc", "c"))

        def make(self) -> Conversation:
            return bug()

    with pytest.raises((AssertionError, RunError), match=says):
        getattr(Suite(), rule)()


@pytest.mark.parametrize("rule", [name for name in dir(ConversationSuite) if name.startswith("test_")])
def test_a_sound_conversation_passes(rule: str) -> None:
    suite = type("Suite", (ConversationSuite,), {"make": lambda self: Sound()})()
    getattr(suite, rule)()
