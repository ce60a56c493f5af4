"""Whether a thread still comes round: it says so at every turn, and another thread asks how long ago that was."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

__all__ = ["Pulse"]


class Pulse:
    """One thread beats and rests; any thread may ask."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds, never running backwards."""
        self._clock = clock
        self._thread = 0
        self._since: float | None = None
        self.given_up = False
        """The thread did not come round for too long: nothing may wait for it."""

    def beat(self) -> None:
        """This thread has come round, and goes on."""
        self._thread, self._since = get_ident(), self._clock()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """Inside, the thread waits for others, however long that takes."""
        self._since = None
        try:
            yield
        finally:
            self.beat()

    @contextmanager
    def working(self) -> Iterator[None]:
        """Inside, this thread must come round; outside it rests."""
        self.beat()
        try:
            yield
        finally:
            self._since = None

    @property
    def age(self) -> float:
        """Seconds since the last beat; 0 while the thread rests."""
        since = self._since
        return 0.0 if since is None else self._clock() - since

    def where(self) -> str:
        """The innermost line that the thread is at: ``engine.py:12 in poll``."""
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return "a thread that has ended"
        line = traceback.extract_stack(frame)[-1]
        return f"{line.filename}:{line.lineno} in {line.name}"
