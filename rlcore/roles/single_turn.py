"""The conversation of one answer, and the checks that every conversation must pass while a rollout is made."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from rlcore.contracts.conversation import Conversation, ConversationSteps, Dialogue, Transcript, Turn, Wait
from rlcore.contracts.errors import RunError
from rlcore.contracts.types import Completion, FinishReason, Message, Score, Segment
from rlcore.registry.error_context import error_context
from rlcore.registry.targets import described

__all__ = ["ActiveConversation", "Answer", "SingleTurn"]


class SingleTurn(Conversation):
    """Asks once; the answer is the only segment."""

    max_turns = 1

    def converse(self, transcript: Transcript) -> ConversationSteps:
        """See Conversation."""
        yield from transcript.ask()
        return transcript.dialogue()


Answer = tuple[Turn, Completion]


@dataclass(slots=True, eq=False)
class ActiveConversation:
    """One rollout in progress. Raises RunError, naming the conversation, if the conversation raises or breaks a rule.

    ``begin`` and ``advance`` run the generator to its next request. Then ``asks`` and ``cancels`` hold the turns to open and to cancel, and
    ``waits`` names what the generator waits for, "" if it cannot be woken. At the end, ``said`` holds the dialogue.
    """

    conversation: Conversation
    transcript: Transcript
    sampled: list[Completion] = field(default_factory=list)
    asks: tuple[Turn, ...] = ()
    cancels: tuple[Turn, ...] = ()
    waits: str = ""
    said: Dialogue | None = None
    asked: int = 0
    """The number of turns that it asked for."""
    _talk: ConversationSteps | None = None

    def begin(self) -> None:
        """Run the generator to its first request."""
        made: Any = self.conversation.converse(self.transcript)
        if not isinstance(made, Generator):
            raise self._broken(f"the result of converse() is {described(made)}, it must be a generator")
        self._talk = made
        self._run(None)

    def advance(self, answers: Sequence[Answer] = ()) -> None:
        """Continue with the answers that came. () wakes a generator that waits."""
        self.sampled += [completion for _, completion in answers]
        self._run(tuple(answers) if self.waits else answers[0][1])

    def close(self) -> None:
        """Close the generator, which gets no more answers."""
        if self._talk is not None:
            with error_context(self.conversation.who, "being closed"):
                self._talk.close()

    def _run(self, sent: Any) -> None:
        assert self._talk is not None, "begin comes first"
        self.asks = self.cancels = ()
        with error_context(self.conversation.who, f"handling prompt {self.transcript.prompt.prompt_id}"):
            try:
                request = self._talk.send(sent)
            except StopIteration as end:
                self.said = self._checked_dialogue(end.value)
                return
            self.waits = request.on if isinstance(request, Wait) else ""
            self.asks, self.cancels = (request.turns, request.cancel) if isinstance(request, Wait) else ((request,), ())
            for turn in self.asks:
                self._check_turn(turn)

    def _check_turn(self, turn: Any) -> None:
        if not isinstance(turn, Turn):
            raise self._broken(f"the yielded value is {described(turn)}, it must be a Turn or a Wait")
        self.asked += 1
        if self.asked > self.conversation.max_turns:
            raise self._broken(f"it asked for more than max_turns = {self.conversation.max_turns} turns; let it end, or raise max_turns")
        given, asked, context = self.transcript.sampling, turn.sampling, len(turn.context_ids)
        if replace(asked, max_new_tokens=given.max_new_tokens, stop=given.stop) != given:
            raise self._broken(f"a turn may change only max_new_tokens and stop of its sampling; it has {asked} instead of {given}")
        if turn.noise is not None and not 0 <= turn.noise < 2**31:
            raise self._broken(f"the noise of a turn is {turn.noise}; it must be from 0 to 2**31 - 1")
        most, setting = self.conversation.max_context_tokens, "--max-context-tokens, which limits context and answer"
        if not self.waits or most is None:
            most = len(self.transcript.context_ids) + given.max_new_tokens
            setting = "--max-new-tokens, which limits all tokens after the prompt"
        if not 1 <= asked.max_new_tokens <= most - context or not context:
            raise self._broken(
                f"it asked for {asked.max_new_tokens} tokens after a context of {context}, and there is room for {most - context}; "
                f"raise {setting}"
            )

    def _checked_dialogue(self, said: Any) -> Dialogue:
        if not isinstance(said, Dialogue):
            raise self._broken(f"the returned value is {described(said)}, it must be a Dialogue")
        for label, values, wanted in (("segments", said.segments, Segment), ("messages", said.messages, Message)):
            if not isinstance(values, tuple) or not all(isinstance(value, wanted) for value in values):
                raise self._broken(f"{label} of its Dialogue must be a tuple of {wanted.__name__}")
        for label, value, kind in (("finish", said.finish, FinishReason), ("verdict", said.verdict, Score)):
            if value is not None and not isinstance(value, kind):
                raise self._broken(f"{label} of its Dialogue is {value!r}, it must be a {kind.__name__} or None")
        turns, rewards = sum(message.policy for message in said.messages), said.turn_rewards
        if said.verdict is None and (not turns or not self.sampled or not said.segments):
            raise self._broken("it ended before the policy said anything, and without a verdict")
        if rewards and (len(rewards) != turns or not np.isfinite(rewards).all()):
            raise self._broken(f"turn_rewards is {rewards}; it must hold a finite number for each of the {turns} messages of the policy")
        if said.turn_lengths and len(said.turn_lengths) != turns:
            raise self._broken(f"turn_lengths is {said.turn_lengths}; it must hold a number for each of the {turns} messages of the policy")
        self._check_tokens(said)
        json.dumps(dict(said.extra))  # its TypeError names a value that is not plain
        return said

    def _check_tokens(self, said: Dialogue) -> None:
        """Check that the trained tokens are sampled ones, in whole turns if their lengths are given. No turn may train twice."""
        masked = [(one.token_ids[one.policy_mask], one.logprobs[one.policy_mask]) for one in said.segments]
        if not said.turn_lengths:
            sampled = iter([pair for one in self.sampled for pair in zip(one.token_ids.tolist(), one.logprobs.tolist(), strict=True)])
            if all(pair in sampled for ids, logprobs in masked for pair in zip(ids.tolist(), logprobs.tolist(), strict=True)):
                return
            raise self._broken(
                "policy_mask is True at a token that the policy did not sample, or not at this place, or with another log probability"
            )
        ids, logprobs = (np.concatenate(parts) for parts in zip(*masked, strict=True)) if masked else (np.zeros(0), np.zeros(0))
        if sum(said.turn_lengths) != len(ids):
            raise self._broken(f"policy_mask is True at {len(ids)} tokens, and turn_lengths sums to {sum(said.turn_lengths)}")
        unused = Counter((one.token_ids.tobytes(), one.logprobs.tobytes()) for one in self.sampled)
        for end, length in zip(np.cumsum(said.turn_lengths), said.turn_lengths, strict=True):
            turn = ids[end - length : end].tobytes(), logprobs[end - length : end].tobytes()
            while not unused[turn]:  # a message with inserted texts consists of several answers
                first = next((one for one in unused if unused[one] and one[0] and all(map(bytes.startswith, turn, one))), None)
                if first is None:
                    raise self._broken("a turn that trains is not a whole answer of the policy, or trains twice")
                unused[first] -= 1
                turn = turn[0][len(first[0]) :], turn[1][len(first[1]) :]
            unused[turn] -= 1

    def _broken(self, rule: str) -> RunError:
        return RunError(f"{self.conversation.who} broke a rule at prompt {self.transcript.prompt.prompt_id}: {rule}")
