"""Conversations: how one rollout comes about. A conversation is a generator that yields what to generate next, receives each completion,
and returns what was said; a ``Transcript`` keeps the tokens. Nothing here knows an engine, a producer or a reward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any

import numpy as np

from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import Tokenizer
from rlcore.contracts.types import Completion, FinishReason, Message, Prompt, Sampling, Segment, TokenDetails

__all__ = ["Conversation", "ConversationSteps", "Dialogue", "Transcript", "Turn"]

_ANSWERS = ("a", "b", "0", "1")
"""Answers by which the end of an answer is found in a rendered chat; several, for the alphabet of a test may lack some."""


@dataclass(frozen=True, slots=True)
class Turn:
    """One request to an engine: int32[C] context and how to sample after it."""

    context_ids: np.ndarray
    sampling: Sampling


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """What a conversation returns. ``segments``: the tokens, ``policy_mask`` True only where the policy wrote. ``messages``: what was said
    behind the prompt, in order, the policy's with ``policy=True``. ``turn_rewards``: (), or a number for each message of the policy;
    ``extra``: plain values that JSON can hold; the reward gets both. ``finish``: how it ended, None for as the last completion did."""

    segments: tuple[Segment, ...]
    messages: tuple[Message, ...]
    turn_rewards: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    finish: FinishReason | None = None


ConversationSteps = Generator[Turn, Completion, Dialogue]


class Conversation(ABC):
    """Makes a rollout of a prompt. One instance serves all rollouts of a producer, many at the same time: what belongs to one of them is a
    local variable of the generator. It runs in the thread that generates, so it must not wait for anything."""

    max_turns: int = 64
    """A rollout that asks for more turns ends the run: its conversation does not end by itself."""
    who: str = "the conversation"
    """What a sentence calls it; rlcore sets it."""

    @abstractmethod
    def converse(self, transcript: Transcript) -> ConversationSteps:
        """A generator: it yields a ``Turn``, receives its ``Completion`` (never an aborted one), and so on, and returns a ``Dialogue``."""


@dataclass
class Transcript:
    """The tokens of one rollout, as one segment that grows behind the prompt. Each context begins with the tokens of the one before it, as
    they were sampled; no text is tokenized again. ``context_ids`` int32[C]: the prompt, rendered. ``sampling.max_new_tokens`` bounds all
    tokens behind it, those between the turns too. ``noise``: the key of whatever the conversation itself draws at random.

    >>> guess = yield from transcript.ask()
    >>> if guess != "7" and transcript.say(Message(role="user", content="higher")):
    ...     guess = yield from transcript.ask()
    >>> return transcript.dialogue()
    """

    prompt: Prompt
    context_ids: np.ndarray
    sampling: Sampling
    tokenizer: Tokenizer
    noise: tuple[int, int, int, int] = (0, 0, 0, 0)
    _messages: list[Message] = field(default_factory=list, init=False)
    _parts: list[Segment] = field(default_factory=list, init=False)
    _finish: FinishReason | None = field(default=None, init=False)

    @property
    def room(self) -> int:
        """How many tokens may still follow."""
        return self.sampling.max_new_tokens - sum(len(part.token_ids) for part in self._parts)

    def ask(self, max_new_tokens: int | None = None, stop: tuple[str, ...] | None = None) -> Generator[Turn, Completion, str]:
        """Let the policy write; returns its text. ``max_new_tokens``: of this turn, as far as there is room. ``stop``: its stop strings,
        None for those of the run. RunError if the tokenizer cannot decode what was sampled."""
        most = self.room if max_new_tokens is None else min(max_new_tokens, self.room)
        sampling = replace(self.sampling, max_new_tokens=most, stop=self.sampling.stop if stop is None else stop)
        said = yield Turn(np.concatenate([self.context_ids, *(part.token_ids for part in self._parts)]), sampling)
        self._append(said.token_ids, said.logprobs, said.versions, True, said.details)
        try:
            text = self.tokenizer.decode(said.token_ids.tolist())
        except Exception as error:
            raise RunError(f"the tokenizer failed while decoding what the engine sampled: {type(error).__name__}: {error}") from error
        self._messages.append(Message(role="assistant", content=text, policy=True))
        return text

    def say(self, *messages: Message) -> bool:
        """Put messages behind the last answer, and the request for the next one, as the chat template writes them. The policy did not write
        them: they are masked. False if they leave no room for an answer: then nothing is said, and the rollout counts as truncated."""
        following = self._following(messages)
        if len(following) >= self.room:
            self._finish = FinishReason.LENGTH
            return False
        version = next((part.versions[-1] for part in reversed(self._parts) if len(part.versions)), 0)
        self._append(following, np.zeros(len(following)), np.full(len(following), version), False)
        self._messages += [replace(message, policy=False) for message in messages]
        return True

    def dialogue(self, *, turn_rewards: Sequence[float] = (), extra: Mapping[str, Any] | None = None) -> Dialogue:
        """What the conversation returns."""
        names = ("token_ids", "logprobs", "versions", "policy_mask")
        arrays = {name: np.concatenate([getattr(part, name) for part in self._parts]) for name in names}
        details = TokenDetails.joined([(part.details, len(part.token_ids)) for part in self._parts])
        segments = (Segment(context_ids=self.context_ids, details=details, **arrays),)
        rewards = tuple(turn_rewards)
        return Dialogue(segments=segments, messages=tuple(self._messages), turn_rewards=rewards, extra=extra or {}, finish=self._finish)

    def _append(
        self, ids: np.ndarray, logprobs: np.ndarray, versions: np.ndarray, policy: bool, details: TokenDetails | None = None
    ) -> None:
        arrays: dict[str, Any] = {"token_ids": ids, "logprobs": logprobs, "versions": versions, "policy_mask": np.full(len(ids), policy)}
        self._parts.append(Segment(context_ids=ids[:0], details=details, **arrays))

    def _following(self, messages: Sequence[Message]) -> np.ndarray:
        """int32: what two chats that differ in an answer have in common behind it. A stop token that was sampled is not repeated."""
        before = self.prompt.messages
        chats = [self.tokenizer.render([*before, Message(role="assistant", content=text), *messages]).tolist() for text in _ANSWERS]
        backwards = zip(reversed(chats[0]), reversed(next((chat for chat in chats if chat != chats[0]), [])), strict=False)
        following = [token for token, other in takewhile(lambda pair: pair[0] == pair[1], backwards)][::-1]
        if not following:
            raise ValueError("the chat template writes all answers alike, or nothing behind them, so no message can follow an answer")
        repeated = self._parts and following[0] in self.tokenizer.stop_ids and following[0] in self._parts[-1].token_ids[-1:]
        return np.array(following[1:] if repeated else following, np.int32)
