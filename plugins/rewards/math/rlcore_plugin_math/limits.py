"""A time limit of our own around a comparison, in any thread.

math-verify's is whole seconds of ``signal.alarm`` for each of several calls, in the main thread only. Ours is one bound for the whole
comparison, and repeats until it is heard, so that a library that swallows it once does not run on. Neither interrupts a single call into C:
what could make one of those long is refused beforehand (``guards.py``), and in a run the engine kills the worker at its deadline.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType

from rlcore_plugin_math.guards import LimitExceeded

__all__ = ["paused", "time_limit"]

_AGAIN = 0.2
_running = threading.local()


def time_limit(seconds: float) -> AbstractContextManager[None]:
    """Raise LimitExceeded in the block after ``seconds`` of wall clock. An alarm that the caller has set is kept."""
    return _by_alarm(seconds) if threading.current_thread() is threading.main_thread() else _by_watcher(seconds)


@contextmanager
def paused() -> Iterator[None]:
    """Inside a time limit: a block that does not count (an import, whose seconds are not the judged text's doing)."""
    if threading.current_thread() is threading.main_thread():
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        yield
        if left:
            signal.setitimer(signal.ITIMER_REAL, left, interval)
        return
    watcher: _Watcher | None = getattr(_running, "watcher", None)
    if watcher is not None:
        watcher.paused = True
    yield
    if watcher is not None:
        watcher.paused = False


def _reason(seconds: float) -> str:
    return f"the comparison took more than {seconds:g} s"


@contextmanager
def _by_alarm(seconds: float) -> Iterator[None]:
    armed = True

    def ring(number: int, frame: FrameType | None) -> None:
        if armed:
            raise LimitExceeded(_reason(seconds))

    handler = signal.signal(signal.SIGALRM, ring)
    started = time.monotonic()
    left, interval = signal.setitimer(signal.ITIMER_REAL, seconds, _AGAIN)
    try:
        yield
    finally:
        armed = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(left - (time.monotonic() - started), 1e-6), interval)


@contextmanager
def _by_watcher(seconds: float) -> Iterator[None]:
    """Outside the main thread no signal arrives; a second thread makes the interpreter raise in this one."""
    watcher = _Watcher(threading.get_ident(), seconds)
    _running.watcher = watcher
    watcher.thread.start()
    try:
        yield
    except LimitExceeded as limit:
        raise LimitExceeded(*(limit.args or (_reason(seconds),))) from None
    finally:
        try:
            watcher.disarm()
        finally:  # where the exception arrived in the line above
            watcher.disarm()


class _Watcher:
    def __init__(self, ident: int, seconds: float) -> None:
        self._ident = ctypes.c_ulong(ident)
        self._seconds = seconds
        self._over = threading.Event()
        self._lock = threading.Lock()
        self.paused = False
        self.thread = threading.Thread(target=self._watch, name="rlcore-math-limit", daemon=True)

    def _watch(self) -> None:
        wait = self._seconds
        while not self._over.wait(wait):
            wait = _AGAIN
            with self._lock:
                if not self._over.is_set() and not self.paused:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self._ident, ctypes.py_object(LimitExceeded))

    def disarm(self) -> None:
        """No exception arrives after this; one that is on its way is taken back."""
        self._over.set()
        with self._lock:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(self._ident, None)
