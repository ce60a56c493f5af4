"""Requests while the engine works on them: their tokens so far, the version that made each, and the stop strings that end them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np

from rlcore.api import Completion, FinishReason, Request, Tokenizer

__all__ = ["OTHER_STOP", "NewTokens", "PartialCompletion", "seed_of"]

OTHER_STOP = "other stop"
"""Why an answer ended that the model's folder says to end, and its own stop tokens do not: it goes on."""

_TAIL = 4
# Tokens beyond one a byte of the longest stop string that are decoded: a character of several tokens may begin before it.


def seed_of(noise: tuple[int, int, int, int]) -> int:
    """A seed of 63 bits from the key of a request's noise. Hashed: the engine's neighbours of a seed are no neighbours here, so two
    requests never share a stream because their keys are near each other."""
    return int.from_bytes(blake2b(repr(tuple(noise)).encode(), digest_size=8).digest(), "little") >> 1


@dataclass(frozen=True, slots=True)
class NewTokens:
    """New tokens of a request. ``versions``: of the first tokens of its answer whose version has not been told yet, maybe of none;
    ``finish``: "" while it goes on, else why it ended, and every version has been told then: "stop", "length", "abort", or OTHER_STOP; any
    other text is an accident, which the producer fails of, in these words. ``withdrawn``: before
    all that, the tokens whose version has not been told are taken back, for nobody can prove it any more."""

    name: str
    tokens: Sequence[int] = ()
    logprobs: Sequence[float] = ()
    versions: Sequence[int] = ()
    finish: str = ""
    withdrawn: bool = False


@dataclass
class PartialCompletion:
    """One request in flight."""

    request: Request
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)
    stopped: bool = False
    cancelled: bool = False

    def add(self, part: NewTokens, tokenizer: Tokenizer) -> bool:
        """Take new tokens, and versions of tokens; True if one completed a stop string, which is the last one that it takes."""
        if part.withdrawn:
            del self.tokens[len(self.versions) :], self.logprobs[len(self.versions) :]
            self.stopped = False  # an answer that has stopped is told of its versions once, at its end
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
        """What it has, as a record."""
        return Completion(
            request_id=self.request.request_id,
            token_ids=np.array(self.tokens, np.int32),
            logprobs=np.array(self.logprobs, np.float32),
            versions=np.array(self.versions[: len(self.tokens)], np.int32),
            finish=finish,
        )

    def _stopped(self, tokenizer: Tokenizer) -> bool:
        """Whether the last token completed a stop string; the tokens before it are known to hold none."""
        reach = max(len(text.encode()) for text in self.request.sampling.stop) + _TAIL
        text = tokenizer.decode(self.tokens[-reach:])
        if any(stop in text for stop in self.request.sampling.stop):
            return True
        # Tokens that print nothing take up room in the tail: if it is short of text, the whole answer is looked at.
        longest = max(map(len, self.request.sampling.stop)) + len(tokenizer.decode(self.tokens[-1:]))
        if len(text) > longest or len(self.tokens) <= reach:
            return False
        whole = tokenizer.decode(self.tokens)
        return any(stop in whole for stop in self.request.sampling.stop)
