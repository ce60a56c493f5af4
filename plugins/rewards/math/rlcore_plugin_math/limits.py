"""A time limit around a comparison, in any thread.

math-verify's own limit is whole seconds of ``signal.alarm`` for each of several calls, in the main thread only. This one is a single bound
for the whole comparison. It raises repeatedly, so that a library that swallows the exception once does not run on. Neither interrupts a
single call into C. Expressions that could make such a call long are refused beforehand (``guards.py``), and in a run the engine kills the
worker at its deadline.
"""

from __future__ import annotations

import ctypes
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
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
    """Exclude a block from the time limit (an import, whose time does not depend on the judged text)."""
    if threading.current_thread() is threading.main_thread():
        left, interval = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            yield
        finally:
            if left:
                signal.setitimer(signal.ITIMER_REAL, left, interval)
        return
    watcher: _Watcher | None = getattr(_running, "watcher", None)
    with watcher.paused() if watcher is not None else nullcontext():
        yield


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
    """Raise through a second thread, since no signal arrives outside the main thread."""
    watcher = _Watcher(threading.get_ident(), seconds)
    _running.watcher = watcher
    try:
        watcher.thread.start()
        watcher.arm()  # not before: on a busy machine the start alone takes longer than many a limit
        yield
    except LimitExceeded as limit:
        raise LimitExceeded(*(limit.args or (_reason(seconds),))) from None
    finally:
        try:
            watcher.disarm()
        finally:  # if the exception arrived in the line above
            watcher.disarm()


class _Watcher:
    def __init__(self, ident: int, seconds: float) -> None:
        self._ident = ctypes.c_ulong(ident)
        self._seconds = seconds
        self._until = 0.0
        self._armed, self._over = threading.Event(), threading.Event()
        self._lock = threading.Lock()
        self._paused = False
        self.thread = threading.Thread(target=self._watch, name="rlcore-math-limit", daemon=True)

    def arm(self) -> None:
        """Start the time."""
        self._until = time.monotonic() + self._seconds
        self._armed.set()

    def _watch(self) -> None:
        self._armed.wait()
        wait = self._until - time.monotonic()
        while not self._over.wait(wait):
            with self._lock:
                left = self._until - time.monotonic()
                wait = _AGAIN if self._paused or left <= 0 else left
                if not self._over.is_set() and not self._paused and left <= 0:
                    ctypes.pythonapi.PyThreadState_SetAsyncExc(self._ident, ctypes.py_object(LimitExceeded))

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Raise nothing inside the block, and extend the limit by its duration."""
        started = time.monotonic()
        with self._lock:
            self._paused = True
        try:
            yield
        finally:
            with self._lock:
                self._paused, self._until = False, self._until + time.monotonic() - started

    def disarm(self) -> None:
        """Stop: no exception arrives after this, and a pending one is cancelled."""
        self._over.set()
        self._armed.set()
        with self._lock:
            ctypes.pythonapi.PyThreadState_SetAsyncExc(self._ident, None)
