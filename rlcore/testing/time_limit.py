"""A time limit for calls in a test, so that an endless loop fails a suite and does not hang it."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["OverdueError", "within"]

_AGAIN = 1.0
"""Seconds until the next alarm, for code that catches everything once."""


class OverdueError(AssertionError):
    """Something took longer than its deadline."""


class _Alarm(BaseException):
    """Raised by the alarm: no Exception, which the code under test may catch."""


@contextmanager
def within(seconds: float, what: str) -> Iterator[None]:
    """Raise OverdueError if the body takes longer than ``seconds``. An alarm interrupts it, so this works in the main thread alone; a timer
    that was set before continues afterwards."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    started = time.monotonic()
    handler = signal.signal(signal.SIGALRM, _ring)
    rest, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    except _Alarm:
        raise OverdueError(f"{what} takes longer than the deadline of {seconds:g} s") from None
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if rest:
            signal.setitimer(signal.ITIMER_REAL, max(rest - (time.monotonic() - started), 0.001), interval)


def _ring(signum: int, frame: object) -> None:
    raise _Alarm
