"""Watch that a thread makes progress: it reports each iteration, and another thread reads the age of the last report.

In a run of one process, an engine that does not return ends the run with one sentence.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import get_ident

from rlcore.contracts.errors import RunError
from rlcore.contracts.runtime_interface import Interrupt

__all__ = ["EngineGuard", "Watchdog"]


class Watchdog:
    """The progress of one thread, which beats and rests. Any thread may read it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """:param clock: a clock in seconds that never runs backwards."""
        self._clock = clock
        self._thread = 0
        self._since: float | None = None
        self.given_up = False
        """Whether the thread made no progress for too long. Nothing may wait for it."""

    def beat(self) -> None:
        """Record that this thread made progress and continues."""
        self._thread, self._since = get_ident(), self._clock()

    @contextmanager
    def resting(self) -> Iterator[None]:
        """A context in which the thread waits for others. Its time does not count."""
        self._since = None
        try:
            yield
        finally:
            self.beat()

    @contextmanager
    def working(self) -> Iterator[None]:
        """A context in which this thread must make progress. Outside it, the thread rests."""
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
        """Return the innermost line of the thread, such as ``engine.py:12 in poll``."""
        frame = sys._current_frames().get(self._thread)
        if frame is None:
            return "a thread that has ended"
        line = traceback.extract_stack(frame)[-1]
        return f"{line.filename}:{line.lineno} in {line.name}"


_INTERRUPTED_SECONDS = 20.0
"""The most seconds that an engine may take to return after Ctrl-C. A run that a user wants to end does not wait for the deadline."""

_JOIN_SECONDS = 1.0
_CLOSING_SECONDS = 30.0
"""The most seconds that an ended run may take to close. After that, the process ends itself."""


class EngineGuard:
    """A thread that watches ``pulse``, which the caller of the engine beats.

    ``engine`` is the engine's name for messages, and ``deadline`` the seconds that it may take to return."""

    def __init__(self, engine: str, deadline: float, say: Callable[[str], None]) -> None:
        self.pulse = Watchdog()
        self._engine = engine
        self._deadline = deadline
        self._say = say
        self._wake = threading.Event()
        self._stopped = False
        self._interrupted: float | None = None
        self._thread: threading.Thread | None = None

    def start(self, interrupt: Interrupt) -> None:
        """Watch until ``stop``."""
        interrupt.wakes.append(self._hurry)
        self._thread = threading.Thread(target=self._watch, args=(interrupt,), name="engine guard", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop watching, because the run is closed."""
        self._stopped = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join(_JOIN_SECONDS)  # it refers to the run, whose memory would otherwise be kept for a moment

    def _hurry(self) -> None:
        self._interrupted = time.monotonic()
        self._wake.set()

    def _watch(self, interrupt: Interrupt) -> None:
        while (left := self._left()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if self._stopped:
                return
        away = f"{self._engine} has not returned for {self.pulse.age:.3g} s and was last at {self.pulse.where()}"
        error: BaseException = RunError(f"{away}; if it may take that long, raise --producer-deadline")
        if self._interrupted is not None:
            self._say(f"{away}: the run ends without this step")
            error = KeyboardInterrupt()
        self.pulse.given_up = True
        self._wake.clear()
        if not interrupt.end(error):
            self._say(f"warning: {away}; end this process if it does not return")
        elif not self._wake.wait(_CLOSING_SECONDS) and not self._stopped:
            print(f"error: {str(error) or 'interrupted'}; the run could not be closed and is killed", file=sys.stderr, flush=True)
            os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)

    def _left(self) -> float:
        """Return the seconds that remain until the engine has taken too long, if it does not return."""
        left = self._deadline - self.pulse.age
        if self._interrupted is None:
            return left
        patience = min(self._deadline, _INTERRUPTED_SECONDS)
        return min(left, patience - min(self.pulse.age, time.monotonic() - self._interrupted))
