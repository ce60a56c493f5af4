"""The completions in progress, as arrays with one entry per row, so that a decode step needs no Python loop over rows.

Rows are dense: 0 to ``count`` - 1. The last row overwrites a row that ends. All arrays are in host memory.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcore.api import Completion, FinishReason, Request

__all__ = ["BLOCK", "NoiseStream", "Rows"]

BLOCK = 64
_LARGEST = 1.0 - 2.0**-40
# Smaller than 1 by more than the rounding of a cumulative sum, so that a draw never lands after the last token with a probability above 0.


class NoiseStream:
    """The uniform numbers in [0, 1) of a completion, ``BLOCK`` at a time, in order: a function of ``Request.noise`` and the token's place.

    The number of token ``t`` is element ``t`` of ``numpy.random.Generator(Philox(SeedSequence(noise))).random()``.
    """

    __slots__ = ("_generator",)

    def __init__(self, noise: tuple[int, ...]) -> None:
        self._generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(noise)))

    def next_block(self) -> np.ndarray:
        """Return float64[BLOCK], the next numbers of the stream."""
        return np.minimum(self._generator.random(BLOCK), _LARGEST)


class Rows:
    """Requests with their tokens so far.

    ``context``, ``generated``, ``limit`` int64[rows] count tokens; ``group`` int64[rows] is the number of the prompt; ``matcher``
    int64[rows] that of its stop strings (-1: none). ``tokens`` int32, ``logprobs`` float32, ``versions`` int32: [rows, tokens].
    """

    def __init__(self) -> None:
        self.count = 0
        self.requests: list[Request] = []
        self._noise: list[NoiseStream] = []
        self.context, self.generated, self.limit, self.group, self.matcher = (np.zeros(0, np.int64) for _ in range(5))
        self.tokens = np.zeros((0, 0), np.int32)
        self.logprobs = np.zeros((0, 0), np.float32)
        self.versions = np.zeros((0, 0), np.int32)
        self._uniforms = np.zeros((0, BLOCK), np.float64)

    def add(self, requests: Sequence[Request], *, group: int, limits: Sequence[int], matchers: Sequence[int]) -> None:
        """Append rows of one prompt that have not generated any tokens yet."""
        first, last = self.count, self.count + len(requests)
        self._reserve(last, int(self.generated[:first].max(initial=0)) + 1)
        self.requests.extend(requests)
        self._noise.extend(NoiseStream(request.noise) for request in requests)
        new = slice(first, last)
        self.context[new] = len(requests[0].token_ids)
        self.generated[new], self.group[new] = 0, group
        self.limit[new], self.matcher[new] = limits, matchers
        self.count = last

    def uniforms(self, first: int) -> np.ndarray:
        """Return float64: for each row from ``first`` on, the uniform number of its next token."""
        place = self.generated[first : self.count] % BLOCK
        for row in np.flatnonzero(place == 0):
            self._uniforms[first + row] = self._noise[first + row].next_block()
        return self._uniforms[np.arange(first, self.count), place]

    def append(self, first: int, tokens: np.ndarray, logprobs: np.ndarray, version: int) -> None:
        """Append the next token to each row from ``first`` on."""
        rows, place = np.arange(first, self.count), self.generated[first : self.count]
        self._reserve(self.count, int(place.max()) + 1)
        self.tokens[rows, place] = tokens
        self.logprobs[rows, place] = logprobs
        self.versions[rows, place] = version
        self.generated[first : self.count] += 1

    def newest(self) -> np.ndarray:
        """Return int64[2, count]: the last token of each row, which is not in the cache yet, and its position."""
        filled = self.generated[: self.count]
        return np.stack([self.tokens[np.arange(self.count), filled - 1].astype(np.int64), self.context[: self.count] + filled - 1])

    def cached(self, first: int, most: int) -> list[np.ndarray]:
        """Return the tokens int32[T] of up to ``most`` rows from ``first`` on whose keys and values the cache holds: all except the
        newest."""
        rows = range(first, min(first + most, self.count))
        return [np.concatenate([self.requests[row].token_ids, self.tokens[row, : self.generated[row] - 1]]) for row in rows]

    def completion(self, row: int, finish: FinishReason) -> Completion:
        """Return the completion of a row."""
        end = self.generated[row]
        return Completion(
            request_id=self.requests[row].request_id,
            token_ids=self.tokens[row, :end],
            logprobs=self.logprobs[row, :end],
            versions=self.versions[row, :end],
            finish=finish,
        )

    def remove(self, ended: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Drop rows int64[k], ascending. Returns (source, target) of the rows that moved into the gaps."""
        left = self.count - len(ended)
        target = ended[ended < left]
        source = np.setdiff1d(np.arange(left, self.count), ended, assume_unique=True)
        for array in (self.context, self.generated, self.limit, self.group, self.matcher, self._uniforms):
            array[target] = array[source]
        width = int(self.generated[: self.count].max(initial=0))
        for table in (self.tokens, self.logprobs, self.versions):
            table[target, :width] = table[source, :width]
        for old, new in zip(source.tolist(), target.tolist(), strict=True):
            self.requests[new], self._noise[new] = self.requests[old], self._noise[old]
        del self.requests[left:], self._noise[left:]
        self.count = left
        return source, target

    def _reserve(self, rows: int, tokens: int) -> None:
        old_rows, old_tokens = self.tokens.shape
        if rows <= old_rows and tokens <= old_tokens:
            return
        rows = old_rows if rows <= old_rows else max(rows, 2 * old_rows)
        tokens = old_tokens if tokens <= old_tokens else max(tokens, 2 * old_tokens, 32)
        for name in ("tokens", "logprobs", "versions"):
            setattr(self, name, _grown(getattr(self, name), (rows, tokens)))
        self._uniforms = _grown(self._uniforms, (rows, BLOCK))
        for name in ("context", "generated", "limit", "group", "matcher"):
            setattr(self, name, _grown(getattr(self, name), (rows,)))


def _grown(old: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    new = np.zeros(shape, old.dtype)
    new[tuple(slice(size) for size in old.shape)] = old
    return new
