"""How often each prompt of an episode was issued."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Ordinals"]


class Ordinals:
    """The number of issues of every prompt: a multiset of prompts. It stays small if the prompts are issued in their order, without end."""

    __slots__ = ("_begun", "_more")

    def __init__(self, state: Sequence[Any] = (0, ())) -> None:
        """Start empty, or as ``state`` returned."""
        self._begun: int = state[0]
        """Every prompt below this number was issued at least once."""
        self._more: dict[int, int] = dict(state[1])
        """The issues beyond that."""

    def issue(self, prompt: int) -> int:
        """Add an issue, and return the number of those before it."""
        before = (prompt < self._begun) + self._more.get(prompt, 0)
        self._more[prompt] = self._more.get(prompt, 0) + 1
        while self._begun in self._more:
            self._more[self._begun] -= 1
            if not self._more[self._begun]:
                del self._more[self._begun]
            self._begun += 1
        return before

    def state(self) -> list[Any]:
        """Return JSON values."""
        return [self._begun, [list(pair) for pair in sorted(self._more.items())]]
