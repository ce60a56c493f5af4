"""Requests while the engine works on them: their tokens so far, the version that drew each, and the stop strings that end them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from rlcore.api import Completion, FinishReason, Request, Tokenizer

__all__ = ["OTHER_STOP", "NewTokens", "PartialCompletion", "seed_of"]

OTHER_STOP = "other stop"
"""The finish of an answer that ended at a stop token of the model's folder which is not one of the run's stop tokens: the answer
continues."""

_TAIL = 4
# Tokens to decode in addition to one per byte of the longest stop string: a character of several tokens may begin before it.


def seed_of(noise: tuple[int, int, int, int]) -> int:
    """Return a seed of 63 bits from the key of a request's noise.

    The key is hashed, so that close keys do not give close seeds, for which an engine might use the same stream.
    """
    return int.from_bytes(blake2b(repr(tuple(noise)).encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True, slots=True)
class NewTokens:
    """New tokens of a request.

    ``versions``: of the first tokens of its answer that have no version yet, possibly none. ``finish``: "" while the answer continues;
    otherwise why it ended, and every token then has a version: "stop", "length", "abort" or OTHER_STOP. Any other text is an error, with
    which the producer fails. ``withdrawn``: before anything else, the tokens without a version are withdrawn, because their version can no
    longer be confirmed.
    """

    name: str
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    versions: Sequence[int] = ()
    finish: str = ""
    withdrawn: bool = False


@dataclass
class PartialCompletion:
    """One request in flight. ``dropped``: the engine was asked to drop it because a stop string had ended it."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stopped: bool = False
    dropped: bool = False
    cancelled: bool = False

    def add(self, part: NewTokens, tokenizer: Tokenizer) -> bool:
        """Add new tokens, and versions of tokens. Returns True if a token completed a stop string; it is the last token that is added."""
        if part.withdrawn:
            del self.tokens[len(self.versions) :], self.logprobs[len(self.versions) :]
            self.stopped = False  # an answer that has stopped receives its versions only once, at its end
        self.versions += part.versions
        if self.stopped:
            return False
        for token, logprob in zip(part.tokens, part.logprobs, strict=True):
            self.tokens.append(token)
            self.logprobs.append(logprob)
            if self.request.sampling.stop and self._stopped(tokenizer):
                self.stopped = True
                break
        return self.stopped

    def completion(self, finish: FinishReason) -> Completion:
        """Return the tokens so far as a completion."""
        return Completion(
            request_id=self.request.request_id,
            token_ids=np.array(self.tokens, np.int32),
            logprobs=np.array(self.logprobs, np.float32),
            versions=np.array(self.versions[: len(self.tokens)], np.int32),
            finish=finish,
        )

    def _stopped(self, tokenizer: Tokenizer) -> bool:
        """Return whether the last token completed a stop string; the tokens before it are known to contain none."""
        reach = max(len(text.encode()) for text in self.request.sampling.stop) + _TAIL
        text = tokenizer.decode(self.tokens[-reach:])
        if any(stop in text for stop in self.request.sampling.stop):
            return True
        # Tokens that print nothing fill the tail: if the tail has too little text, the whole answer is searched.
        longest = max(map(len, self.request.sampling.stop)) + len(tokenizer.decode(self.tokens[-1:]))
        if len(text) > longest or len(self.tokens) <= reach:
            return False
        whole = tokenizer.decode(self.tokens)
        return any(stop in whole for stop in self.request.sampling.stop)
