"""What other threads and processes have to say to a role's thread: it waits here, and nowhere else, where it has nothing to do."""

from __future__ import annotations

import threading
from collections.abc import Callable

__all__ = ["Mailbox"]


class Mailbox:
    """What is to be done, in order, and nudges without content. Any thread may ``put`` and ``nudge``; one thread takes and waits."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._letters: list[Callable[[], object]] = []
        self._nudged = False

    def put(self, letter: Callable[[], object]) -> None:
        """A letter for the next ``take``: what its reader calls."""
        with self._changed:
            self._letters.append(letter)
            self._changed.notify()

    def nudge(self) -> None:
        """End the present wait, or the next one."""
        with self._changed:
            self._nudged = True
            self._changed.notify()

    def take(self) -> list[Callable[[], object]]:
        """All letters that are here; does not wait."""
        with self._changed:
            letters, self._letters = self._letters, []
            return letters

    def wait(self, timeout: float | None = None) -> None:
        """Until there is a letter or a nudge, or ``timeout`` seconds have passed; the nudge is used up."""
        with self._changed:
            self._changed.wait_for(lambda: self._nudged or bool(self._letters), timeout)
            self._nudged = False
