"""The conversation of one answer, and the checks that every conversation must pass while a rollout is made."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlcore.contracts.conversation import Conversation, ConversationSteps, Dialogue, Transcript, Turn
from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Completion, FinishReason, Message, Segment
from rlcore.registry.error_context import error_context
from rlcore.registry.targets import described

__all__ = ["ActiveConversation", "SingleTurn"]


class SingleTurn(Conversation):
    """Asks once; the answer is the only segment."""

    max_turns = 1

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        yield from transcript.ask()
        return transcript.dialogue()


@dataclass(slots=True)
class ActiveConversation:
    """One rollout in progress. Raises RunError, naming the conversation, if the conversation raises or breaks a rule."""

    conversation: Conversation
    transcript: Transcript
    sampled: list[Completion] = field(default_factory=list)
    turn: Turn = field(init=False)
    said: Dialogue | None = None
    _talk: ConversationSteps | None = None

    def advance(self, completion: Completion | None = None) -> None:
        """Continue after a completion (None at the beginning) to the next ``turn`` or to the end. At the end, ``said`` holds the
        dialogue."""
        with error_context(self.conversation.who, f"handling prompt {self.transcript.prompt.prompt_id}"):
            try:
                if completion is None or self._talk is None:
                    self._talk = self.conversation.converse(self.transcript)
                    self.turn = self._checked_turn(next(self._talk))
                else:
                    self.sampled.append(completion)
                    self.turn = self._checked_turn(self._talk.send(completion))
            except StopIteration as end:
                self.said = self._checked_dialogue(end.value)

    def _checked_turn(self, turn: Any) -> Turn:
        if not isinstance(turn, Turn):
            raise self._broken(f"the yielded value is {described(turn)}, it must be a Turn")
        if len(self.sampled) >= self.conversation.max_turns:
            raise self._broken(f"it asked for more than max_turns = {self.conversation.max_turns} turns; let it end, or raise max_turns")
        given, asked, context = self.transcript.sampling, turn.sampling, len(turn.context_ids)
        if replace(asked, max_new_tokens=given.max_new_tokens, stop=given.stop) != given:
            raise self._broken(f"a turn may change only max_new_tokens and stop of its sampling; it has {asked} instead of {given}")
        room = len(self.transcript.context_ids) + given.max_new_tokens - context
        if not 1 <= asked.max_new_tokens <= room or not context:
            raise self._broken(
                f"it asked for {asked.max_new_tokens} tokens after a context of {context}, and there is room for {room}; raise "
                "--max-new-tokens, which limits all tokens after the prompt"
            )
        return turn

    def _checked_dialogue(self, said: Any) -> Dialogue:
        if not isinstance(said, Dialogue):
            raise self._broken(f"the returned value is {described(said)}, it must be a Dialogue")
        for label, values, wanted in (("segments", said.segments, Segment), ("messages", said.messages, Message)):
            if not isinstance(values, tuple) or not all(isinstance(value, wanted) for value in values):
                raise self._broken(f"{label} of its Dialogue must be a tuple of {wanted.__name__}")
        if not isinstance(said.finish, FinishReason | None):
            raise self._broken(f"finish of its Dialogue is {said.finish!r}, it must be a FinishReason or None")
        turns, rewards = sum(message.policy for message in said.messages), said.turn_rewards
        if not turns or not self.sampled or not said.segments:
            raise self._broken("it ended before the policy said anything")
        if rewards and (len(rewards) != turns or not np.isfinite(rewards).all()):
            raise self._broken(f"turn_rewards is {rewards}; it must hold a finite number for each of the {turns} messages of the policy")
        sampled = iter([pair for one in self.sampled for pair in zip(one.token_ids.tolist(), one.logprobs.tolist(), strict=True)])
        for one in said.segments:
            trained = zip(one.token_ids[one.policy_mask].tolist(), one.logprobs[one.policy_mask].tolist(), strict=True)
            if not all(pair in sampled for pair in trained):
                raise self._broken(
                    "policy_mask is True at a token that the policy did not sample, or not at this place, or with another log probability"
                )
        json.dumps(dict(said.extra))  # its TypeError names a value that is not plain
        return said

    def _broken(self, rule: str) -> RunError:
        return RunError(f"{self.conversation.who} broke a rule at prompt {self.transcript.prompt.prompt_id}: {rule}")
