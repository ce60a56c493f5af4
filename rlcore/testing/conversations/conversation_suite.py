"""Conformance suite for conversations. Scripts play the policy, so the suite needs no model."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from rlcore.contracts.conversation import Conversation, Dialogue, Transcript, Turn
from rlcore.contracts.types import Completion, FinishReason, Message, Prompt, Sampling
from rlcore.roles.single_turn import ActiveConversation
from rlcore.testing.tokens import FakeTokenizer

__all__ = ["ConversationSuite", "PlayedTalk"]


@dataclass
class PlayedTalk:
    """A rollout in which a script plays the policy: answer ``n`` to turn ``n``, the last one again and again after the script.

    An answer ends with the stop token, or with the first stop string of its turn."""

    open: ActiveConversation
    script: Sequence[str]
    tokenizer: FakeTokenizer
    turns: list[Turn] = field(default_factory=list)

    def step(self) -> bool:
        """Begin, or answer the open turn; False once the conversation has ended."""
        if self.turns:
            self.open.advance([(self.turns[-1], self._answer())])
        else:
            self.open.begin()
        if self.open.said is None:
            (turn,) = self.open.asks
            self.turns.append(turn)
        return self.open.said is None

    def played(self) -> Dialogue:
        """Play to the end, and return the dialogue."""
        while self.step():
            pass
        assert self.open.said is not None
        return self.open.said

    def _answer(self) -> Completion:
        number, (stop,) = len(self.open.sampled), self.tokenizer.stop_ids
        text, asked = self.script[min(number, len(self.script) - 1)], self.turns[-1].sampling
        ends = [place + len(string) for string in asked.stop if (place := text.find(string)) >= 0]
        whole = self.tokenizer.encode(text[: min(ends)]) if ends else [*self.tokenizer.encode(text), stop]
        ids = whole[: asked.max_new_tokens]
        return Completion(
            request_id=str(number),
            token_ids=np.array(ids, np.int32),
            logprobs=-np.linspace(0.5, 0.6, len(ids), dtype=np.float32) - number,
            versions=np.full(len(ids), number),
            finish=FinishReason.STOP if len(ids) == len(whole) else FinishReason.LENGTH,
        )


def _tells(messages: Sequence[str], answers: Sequence[str]) -> bool:
    """Return whether each message begins with an answer, and contains the following answers, in order, until the next message."""
    left = list(answers)
    for message in messages:
        place, first = 0, True
        while left and (place := message.find(left[0], place)) >= 0 and (place == 0 or not first):
            place, first = place + len(left.pop(0)), False
        if first:
            return False
    return not left


class ConversationSuite:
    """The rules of a conversation, whose policy is played from scripts, so that no model is needed.

    A subclass defines how to make the conversation, and scripts that lead it through each of its branches.
    """

    scripts: tuple[tuple[str, ...], ...] = (("a", "b"),)
    """The answers of one rollout each, turn by turn; a conversation that asks for more gets the last one again."""
    alphabet: str = string.printable
    """Characters that scripts, prompt and conversation use."""
    tokens: int = 2048
    """The tokens that a rollout may have behind its prompt."""
    continues: bool = True
    """Each turn's context begins with the context before it and its answer, as ``Transcript`` has it. Set False for a conversation that
    begins anew or omits earlier turns."""

    def make(self) -> Conversation:
        """Return a fresh conversation, with options if it has any."""
        raise NotImplementedError

    def prompt(self) -> Prompt:
        """Return a prompt for the conversation, with the columns that it reads."""
        return Prompt(prompt_id="p0", index=0, messages=(Message(role="user", content="?"),))

    def begin(self, conversation: Conversation, script: Sequence[str], tokens: int | None = None) -> PlayedTalk:
        """Return a rollout that is about to begin."""
        tokenizer, prompt = FakeTokenizer(self.alphabet), self.prompt()
        sampling = Sampling(temperature=0.7, max_new_tokens=self.tokens if tokens is None else tokens, stop=("\x00",))
        transcript = Transcript(prompt, tokenizer.render(prompt.messages), sampling, tokenizer, (0, 0, 0, 7))
        return PlayedTalk(ActiveConversation(conversation, transcript), script, tokenizer)

    def test_every_rollout_keeps_the_rules(self) -> None:
        """Each script ends in a ``Dialogue``, within ``max_turns`` and the tokens of the rollout."""
        for script in self.scripts:
            talk = self.begin(self.make(), script)
            said = talk.played()
            assert said.segments, f"{script}: the dialogue has no segment"

    def test_each_context_goes_on_from_the_one_before(self) -> None:
        """Each context begins with the tokens of the previous context and its answer, as they were sampled. Text that is tokenized
        again may give other tokens. Not checked with ``continues = False``."""
        for script in self.scripts if self.continues else ():
            talk = self.begin(self.make(), script)
            talk.played()
            for number, (turn, later) in enumerate(zip(talk.turns, talk.turns[1:], strict=False)):
                before = np.concatenate([turn.context_ids, talk.open.sampled[number].token_ids])
                same = np.array_equal(later.context_ids[: len(before)], before)
                assert same, f"{script}: the context of turn {number + 2} does not begin with turn {number + 1} and its answer"

    def test_what_the_policy_wrote_trains_and_nothing_else(self) -> None:
        """``policy_mask`` is True at each token of each answer and nowhere else; log probabilities and versions are those that were
        sampled. Not checked with ``continues = False``."""
        for script in self.scripts if self.continues else ():
            talk = self.begin(self.make(), script)
            said = talk.played()
            for name in ("token_ids", "logprobs", "versions"):
                trained = np.concatenate([getattr(one, name)[one.policy_mask] for one in said.segments])
                sampled = np.concatenate([getattr(one, name) for one in talk.open.sampled])
                assert np.array_equal(trained, sampled), f"{script}: {name} where policy_mask is True are not those that were sampled"

    def test_segments_hold_what_the_engine_was_asked(self) -> None:
        """For each turn, a segment begins with the context that the engine was given and its answer. Not checked with ``continues =
        False``."""
        for script in self.scripts:
            talk = self.begin(self.make(), script)
            whole = [np.concatenate([one.context_ids, one.token_ids]) for one in talk.played().segments]
            for number, (turn, answer) in enumerate(zip(talk.turns, talk.open.sampled, strict=True)):
                asked = np.concatenate([turn.context_ids, answer.token_ids])
                held = any(np.array_equal(one[: len(asked)], asked) for one in whole)
                assert held or not self.continues, f"{script}: no segment begins with the context and the answer of turn {number + 1}"

    def test_messages_tell_what_was_said(self) -> None:
        """The policy's messages are its answers, in order, with inserted text between them. Each other message is in a segment."""
        for script in self.scripts:
            talk = self.begin(self.make(), script)
            said = talk.played()
            answers = [talk.tokenizer.decode(one.token_ids.tolist()) for one in talk.open.sampled]
            told = [message.content for message in said.messages if message.policy]
            assert _tells(told, answers), f"{script}: the policy's messages are {told}, and it said {answers}"
            seen = talk.tokenizer.decode(np.concatenate([one.token_ids for one in said.segments]).tolist())
            unheard = [message.content for message in said.messages if not message.policy and message.content not in seen]
            assert not unheard, f"{script}: the messages {unheard} stand in no segment"

    def test_a_rollout_depends_on_its_answers_alone(self) -> None:
        """The same answers give the same rollout, again and while another rollout of the same instance is under way."""
        for script in self.scripts:
            for other in self.scripts:
                alone, conversation = self.begin(self.make(), script).played(), self.make()
                one, two = self.begin(conversation, script), self.begin(conversation, other)
                while one.step():
                    two.step() if two.open.said is None else None
                assert one.open.said is not None
                mixed, again = repr(one.open.said), repr(self.begin(conversation, script).played())
                assert mixed == repr(alone), f"{script}: another rollout ({other}) that is under way changes this one"
                assert again == repr(alone), f"{script}: the same answers give another rollout the second time"

    def test_any_answer_will_do(self) -> None:
        """The conversation accepts any answer: none, nonsense, one very long word."""
        for answer in ("", " ", "{[(\\", "9" * 200, "\n\n"):
            self.begin(self.make(), (answer,)).played()

    def test_little_room_is_no_accident(self) -> None:
        """If the tokens of the rollout are used up, the conversation ends, and its finish is LENGTH."""
        for script in self.scripts:
            whole = self.begin(self.make(), script)
            used = sum(len(one.token_ids) for one in whole.played().segments)
            for tokens in range(1, min(used, 64)):
                talk = self.begin(self.make(), script, tokens)
                said = talk.played()
                finish = said.finish or talk.open.sampled[-1].finish
                assert finish is FinishReason.LENGTH or len(talk.turns) == len(whole.turns), (
                    f"{script}: with {tokens} tokens it ends after {len(talk.turns)} of {len(whole.turns)} turns, and is not marked as cut"
                )
