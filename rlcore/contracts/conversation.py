"""Conversations: how a rollout is produced from a prompt.

A conversation is a generator. It yields the next request to the engine, receives each completion, and returns the messages. It may also
have several requests open, and wait for something outside of rlcore. A ``Transcript`` keeps the tokens. This module knows no engine,
producer or reward.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Any, Literal

import numpy as np

from rlcore.contracts.environment import ChosenEnvironment
from rlcore.contracts.errors import RunError
from rlcore.contracts.interfaces import Tokenizer
from rlcore.contracts.types import Completion, FinishReason, Message, Prompt, RolloutBranch, Sampling, Score, Segment, TokenDetails

__all__ = ["Conversation", "ConversationContext", "ConversationSteps", "Dialogue", "Transcript", "Turn", "Wait", "following", "rendered"]

_ANSWERS = ("a", "b", "0", "1")
"""Sample answers, used to find the text that a rendered chat has after an answer.

There are several because a small test alphabet may lack some of them.
"""


def rendered(tokenizer: Tokenizer, prompt: Prompt, *following: Message) -> np.ndarray:
    """Return int32[C]: the prompt, and messages after it, with the prompt's tools if it has some."""
    messages = [*prompt.messages, *following]
    return tokenizer.render(messages, tools=prompt.tools) if prompt.tools else tokenizer.render(messages)


def following(
    tokenizer: Tokenizer,
    history: Sequence[Message],
    messages: Sequence[Message],
    tools: Sequence[Mapping[str, Any]] = (),
    sampled: Sequence[int] | np.ndarray = (),
) -> np.ndarray:
    """Return int32: the tokens that follow an answer in the rendered chat: its end, ``messages``, and the generation prompt.

    They are the common end of two chats that differ only in one answer. A stop token that ends ``sampled`` is not repeated.

    :param history: the messages before the answer. One short message gives the same tokens as a long history, and costs less.
    :param sampled: the tokens of the answer.
    """
    answers = (Message(role="assistant", content=text) for text in _ANSWERS)
    chats = (
        rendered(tokenizer, Prompt(prompt_id="", index=0, messages=(*history, answer), tools=tuple(tools)), *messages).tolist()
        for answer in answers
    )
    first = next(chats)
    backwards = zip(reversed(first), reversed(next((chat for chat in chats if chat != first), [])), strict=False)
    ids = [token for token, other in takewhile(lambda pair: pair[0] == pair[1], backwards)][::-1]
    if not ids:
        raise ValueError("the chat template renders all answers alike, or nothing after them, so a message cannot follow an answer")
    repeated = ids[0] in tokenizer.stop_ids and ids[0] in sampled[-1:]
    return np.array(ids[1:] if repeated else ids, np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """One request to an engine: the context, int32[C], and how to sample after it.

    ``noise``: the number of its random stream in the rollout, from 0 to 2**31 - 1. None: the number of answers before it, which depends on
    timing if several requests are open.
    """

    context_ids: np.ndarray
    sampling: Sampling
    noise: int | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Requests to open, and a wait for whatever comes first: an answer, or a call of ``Transcript.wake``. Since 2.0.

    ``turns``: requests to open, beside those that are open already.
    ``cancel``: open requests that nobody needs. They get no answer, and their tokens do not train.
    ``on``: what takes the time if no request is open, for the account of the producer's time.
    """

    turns: tuple[Turn, ...] = ()
    cancel: tuple[Turn, ...] = ()
    on: Literal["environments", "tools"] = "environments"


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialogue:
    """The result of a conversation.

    ``segments``: the tokens. ``policy_mask`` is True only for tokens that the policy wrote.
    ``messages``: the messages after the prompt, in order. The policy's messages have ``policy=True``.
    ``turn_rewards``: (), or one number for each message of the policy. The reward receives them.
    ``extra``: plain values that JSON can represent. The reward receives them.
    ``finish``: how the rollout ended; None means: as the last completion ended.
    ``turn_lengths``: the number of sampled tokens of each message of the policy, in the order of the segments' tokens. (): each run of True
        in ``policy_mask`` is one turn.
    ``text``: the answer that rewards of single answers grade; None: the last message of the policy.
    ``branches``: (), or parts of the rollout that are rewarded separately. Together they have all segments.
    ``verdict``: the score, if the conversation itself decides it. Then no reward judges the rollout, and it needs no answer of the policy.
        ``Score.failed`` masks it.
    """

    segments: tuple[Segment, ...] = ()
    messages: tuple[Message, ...] = ()
    turn_rewards: tuple[float, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    finish: FinishReason | None = None
    turn_lengths: tuple[int, ...] = ()
    text: str | None = None
    branches: tuple[RolloutBranch, ...] = ()
    verdict: Score | None = None


ConversationSteps = Generator[Turn | Wait, Any, Dialogue]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConversationContext:
    """The surroundings of a conversation in one producer.

    ``max_context_tokens``: the limit of context and answer of each request. ``max_new_tokens``: of all sampled tokens of a rollout.
    ``lease_deadline``: seconds after which the schedule gives a prompt to another producer.
    ``environment``: what ``sampling.environment`` names, None for none.
    ``say``: shows a warning to the user.
    """

    producer: str
    tokenizer: Tokenizer
    seed: int
    max_context_tokens: int
    max_new_tokens: int
    lease_deadline: float
    environment: ChosenEnvironment | None
    say: Callable[[str], None]


class Conversation(ABC):
    """A way to produce a rollout from a prompt.

    One instance serves all rollouts of a producer, many of them at the same time. Keep the state of one rollout in local variables of the
    generator. The generator runs in the thread that generates, so it must not block: what takes time runs elsewhere and calls
    ``Transcript.wake``.
    """

    max_turns: int = 64
    """The limit of turns. A rollout that asks for more ends the run, because its conversation does not terminate."""
    max_context_tokens: int | None = None
    """The limit of context and answer of a request that a ``Wait`` opens; rlcore sets it."""
    deadline: float | None = None
    """Seconds after which a rollout is closed without an answer, and masked as a timeout. None: never, which suits only a conversation that
    yields no ``Wait``. Since 2.0."""
    who: str = "the conversation"
    """The name of the conversation in messages; rlcore sets it."""

    def open(self, context: ConversationContext) -> None:  # noqa: B027  most conversations need nothing
        """Start what the conversation needs. Called once in each producer, before its first rollout. Since 2.0."""

    def close(self) -> None:  # noqa: B027
        """End what ``open`` started. Called once; every generator is closed by then. Since 2.0."""

    @abstractmethod
    def converse(self, transcript: Transcript) -> ConversationSteps:
        """Return a generator that yields a ``Turn``, receives its ``Completion``, repeats this, and returns a ``Dialogue``.

        In place of a ``Turn`` it may yield a ``Wait``. Then it receives a tuple of (``Turn``, ``Completion``) with the answers that came;
        () after a call of ``transcript.wake``. The generator never receives an aborted completion. It is closed (``GeneratorExit``) if its
        rollout is not needed any more, if ``deadline`` is over, or if the run ends.
        """


@dataclass
class Transcript:
    """The tokens of one rollout, kept as one segment that grows after the prompt.

    Each context begins with the tokens of the previous one, as they were sampled. No text is tokenized twice.
    ``insert`` continues the policy's message, and ``say`` ends it.

    ``context_ids``: int32[C], the rendered prompt.
    ``sampling``: its ``max_new_tokens`` bounds all tokens after the prompt, including those between the turns.
    ``noise``: the key for random draws of the conversation itself.
    ``wake``: ends a ``Wait`` of the generator. Any thread may call it, also after the rollout ended.

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
    wake: Callable[[], None] = field(default=lambda: None, repr=False)
    _messages: list[Message] = field(default_factory=list, init=False)
    _parts: list[Segment] = field(default_factory=list, init=False)
    _lengths: list[int] = field(default_factory=list, init=False)
    _start: int | None = field(default=None, init=False)
    """The number of the part with which the policy's last message begins; None if another message follows it."""
    _inserted: bool = field(default=False, init=False)
    """Whether the policy's next answer continues its last message."""
    _finish: FinishReason | None = field(default=None, init=False)

    @property
    def room(self) -> int:
        """The number of tokens that may still follow."""
        return self.sampling.max_new_tokens - sum(len(part.token_ids) for part in self._parts)

    def ask(self, max_new_tokens: int | None = None, stop: tuple[str, ...] | None = None) -> Generator[Turn, Completion, str]:
        """Let the policy write one message, or continue it after ``insert``. Return the text that it wrote now.

        :param max_new_tokens: the limit of this turn, itself limited by ``room``; None for all of ``room``.
        :param stop: stop strings of this turn; None for those of the run.
        :raises RunError: the tokenizer cannot decode the sampled tokens, or a stop string can never match.
        """
        self._check_stop(stop or ())
        most = self.room if max_new_tokens is None else min(max_new_tokens, self.room)
        sampling = replace(self.sampling, max_new_tokens=most, stop=self.sampling.stop if stop is None else stop)
        said = yield Turn(np.concatenate([self.context_ids, *(part.token_ids for part in self._parts)]), sampling)
        text = self._text(said.token_ids)
        if not self._inserted:
            self._start = len(self._parts)
            self._messages.append(Message(role="assistant", content=text, policy=True))
            self._lengths.append(0)
        self._append(said.token_ids, said.logprobs, said.versions, True, said.details)
        self._lengths[-1] += len(said.token_ids)
        if self._inserted:
            self._continue_message()
        self._inserted = False
        return text

    def insert(self, text: str) -> bool:
        """Append a text to the policy's message, such as the result of a tool that it has called. The next ``ask`` continues the message.

        The policy did not write these tokens, so they are masked. Return False if nothing was appended: the policy has ended its message
        with a stop token, or the text leaves no room for an answer; then the rollout counts as truncated.
        """
        if self._start is None:
            raise ValueError("insert continues a message of the policy, and no answer of the policy precedes it: ask first")
        ids = np.array(self.tokenizer.encode(text), np.int32)
        last = self._parts[-1]
        ended = last.policy_mask.any() and int(last.token_ids[-1]) in getattr(self.tokenizer, "end_ids", self.tokenizer.stop_ids)
        if ended or not self._force(ids):
            return False
        self._inserted, start = True, len(self._messages[-1].content)
        self._continue_message()
        message = self._messages[-1]
        self._messages[-1] = replace(message, inserted=(*message.inserted, (start, len(message.content))))
        return True

    def say(self, *messages: Message) -> bool:
        """Append messages after the last answer, and the generation prompt for the next answer, as the chat template writes them.

        The policy did not write these tokens, so they are masked. Return False if they leave no room for an answer: then nothing is
        appended, and the rollout counts as truncated.
        """
        said = self._parts[-1].token_ids if self._parts else ()
        if not self._force(following(self.tokenizer, self.prompt.messages, messages, self.prompt.tools, said)):
            return False
        self._start, self._inserted = None, False
        self._messages += [replace(message, policy=False) for message in messages]
        return True

    def dialogue(self, *, turn_rewards: Sequence[float] = (), extra: Mapping[str, Any] | None = None) -> Dialogue:
        """Return the result of the conversation."""
        names = ("token_ids", "logprobs", "versions", "policy_mask")
        arrays = {name: np.concatenate([getattr(part, name) for part in self._parts]) for name in names}
        details = TokenDetails.joined([(part.details, len(part.token_ids)) for part in self._parts])
        segments = (Segment(context_ids=self.context_ids, details=details, **arrays),)
        return Dialogue(
            segments=segments,
            messages=tuple(self._messages),
            turn_rewards=tuple(turn_rewards),
            turn_lengths=tuple(self._lengths),
            extra=extra or {},
            finish=self._finish,
        )

    def _check_stop(self, strings: tuple[str, ...]) -> None:
        """Raise RunError for a stop string of this turn that holds a special token, because decoded text has none."""
        unmatched = getattr(self.tokenizer, "unmatched", None)
        if unmatched is not None and (found := unmatched(strings)):
            raise RunError(
                f"the stop string {found[0]!r} of this turn would never match; name its special token for the run: --stop {found[1]}"
            )

    def _text(self, ids: np.ndarray) -> str:
        try:
            return self.tokenizer.decode(ids.tolist())
        except Exception as error:
            raise RunError(f"the tokenizer failed to decode the sampled tokens: {type(error).__name__}: {error}") from error

    def _continue_message(self) -> None:
        """Let the last message have the text of all its tokens."""
        written = np.concatenate([part.token_ids for part in self._parts[self._start :]])
        self._messages[-1] = replace(self._messages[-1], content=self._text(written))

    def _force(self, ids: np.ndarray) -> bool:
        """Append tokens that the policy did not write; False if they leave no room for an answer."""
        if len(ids) >= self.room:
            self._finish = FinishReason.LENGTH
            return False
        version = next((part.versions[-1] for part in reversed(self._parts) if len(part.versions)), 0)
        self._append(ids, np.zeros(len(ids)), np.full(len(ids), version), False)
        return True

    def _append(
        self, ids: np.ndarray, logprobs: np.ndarray, versions: np.ndarray, policy: bool, details: TokenDetails | None = None
    ) -> None:
        arrays: dict[str, Any] = {"token_ids": ids, "logprobs": logprobs, "versions": versions, "policy_mask": np.full(len(ids), policy)}
        self._parts.append(Segment(context_ids=ids[:0], details=details, **arrays))
