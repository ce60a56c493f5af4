"""Where a worker's seconds go: every one of them belongs to exactly one activity, so that the shares add up to the time elapsed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, get_ident

__all__ = ["IDLE", "TimeAccount"]

IDLE = "idle"
"""The activity outside every span."""


class TimeAccount:
    """One worker's time, in seconds. Spans nest, and the inner one's time is not the outer one's too.

    >>> account = TimeAccount()
    >>> with account.span("generation"):
    ...     with account.span("wait/weights"):
    ...         pass
    >>> sorted(account.totals())
    ['generation', 'idle', 'wait/weights']

    Spans belong to the thread that does the work; ``totals`` and ``take`` may be called from any other.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """``clock``: seconds, never running backwards."""
        self._clock = clock
        self._lock = Lock()
        self._open: list[str] = []
        self._thread = 0
        self._seconds: dict[str, float] = {IDLE: 0.0}
        self._since = clock()

    @contextmanager
    def span(self, activity: str) -> Iterator[None]:
        """Books the time inside to ``activity``, also when an exception leaves it.

        Raises ValueError for an empty name, or while another thread has a span open: the time of two threads would not add up.
        """
        if not activity:
            raise ValueError("a span needs the name of an activity")
        with self._lock:
            if self._open and self._thread != get_ident():
                raise ValueError(f"span {activity!r}: another thread is inside {self._open[-1]!r}; one account is for one thread at a time")
            self._book()
            self._thread = get_ident()
            self._open.append(activity)
        try:
            yield
        finally:
            with self._lock:
                self._book()
                self._open.pop()

    def totals(self) -> dict[str, float]:
        """Seconds by activity since the start or the last ``take``, open spans up to now; with ``idle`` they sum to the time elapsed."""
        with self._lock:
            self._book()
            return dict(self._seconds)

    def take(self) -> dict[str, float]:
        """``totals``, and start again from zero; open spans stay open."""
        with self._lock:
            self._book()
            seconds, self._seconds = self._seconds, {IDLE: 0.0}
            return seconds

    def _book(self) -> None:
        """Books the time since the last booking to the innermost open span."""
        now = self._clock()
        activity = self._open[-1] if self._open else IDLE
        self._seconds[activity] = self._seconds.get(activity, 0.0) + now - self._since
        self._since = now
