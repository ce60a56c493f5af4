"""Stop strings: find the token that completes one. Decodes only if the new token can complete one, and only as far back as a stop string
reaches."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rlcore.api import Tokenizer

__all__ = ["StopMatcher"]

_UNKNOWN, _NEVER, _MAYBE = 0, 1, 2


class StopMatcher:
    """A search for the stop strings ``stop`` in a response that grows token by token; the prompt is never searched."""

    def __init__(self, stop: tuple[str, ...], tokenizer: Tokenizer, vocabulary: int) -> None:
        self._stop = stop
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}
        self._closing = np.full(vocabulary, _UNKNOWN, np.int8)
        self._last_characters = {text[-1] for text in stop}
        # A tokenizer may print a lone space as nothing, so a stop string that ends in one can be completed by any token.
        self._always = any(character.isspace() for character in self._last_characters)
        self._reach = max(len(text.encode()) for text in stop) + 2

    def candidates(self, tokens: np.ndarray) -> np.ndarray:
        """Return bool[n]: whether each of the new tokens int[n] can complete a stop string at all."""
        for token in np.unique(tokens[self._closing[tokens] == _UNKNOWN]).tolist():
            self._closing[token] = _MAYBE if self._may_close(token) else _NEVER
        possible: np.ndarray = self._closing[tokens] == _MAYBE
        return possible

    def found(self, tokens: Sequence[int]) -> bool:
        """Return whether the last of the response's tokens completed a stop string; the tokens before it are known to contain none."""
        text = self._tokenizer.decode(self._tail(tokens))
        return any(stop in text for stop in self._stop)

    def _may_close(self, token: int) -> bool:
        piece = self._piece(token)
        # U+FFFD: a part of a character, whose last byte may complete it.
        return self._always or "\ufffd" in piece or any(character in piece for character in self._last_characters)

    def _tail(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return enough of the last tokens to hold a stop string even if each is one byte; tokens that print nothing do not count."""
        start, counted = len(tokens), 0
        while start > 0 and counted < self._reach:
            start -= 1
            counted += bool(self._piece(tokens[start]))
        return tokens[start:]

    def _piece(self, token: int) -> str:
        piece = self._pieces.get(token)
        if piece is None:
            piece = self._pieces[token] = self._tokenizer.decode([token])
        return piece
