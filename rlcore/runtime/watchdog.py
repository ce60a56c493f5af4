"""Whether a thread still comes round: it says so at every turn, and another thread asks how long ago that was. Of a run in one process, an
engine that does not come back ends the run with a sentence.
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


_INTERRUPTED_SECONDS = 20.0
"""How long, at most, an engine may stay away after Ctrl-C: a run that somebody wants to end does not wait for the deadline."""

_CLOSING_SECONDS = 30.0
"""How long a run that was ended may take to close; after that the process ends itself."""


class EngineGuard:
    """A thread that looks at ``pulse``, which whoever calls the engine beats. ``engine``: what a person calls it; ``deadline``: seconds
    that it may stay away."""

    def __init__(self, engine: str, deadline: float, say: Callable[[str], None]) -> None:
        self.pulse = Watchdog()
        self._engine = engine
        self._deadline = deadline
        self._say = say
        self._wake = threading.Event()
        self._stopped = False
        self._interrupted: float | None = None

    def start(self, interrupt: Interrupt) -> None:
        """Watch until ``stop``."""
        interrupt.wakes.append(self._hurry)
        threading.Thread(target=self._watch, args=(interrupt,), name="engine guard", daemon=True).start()

    def stop(self) -> None:
        """The run is closed."""
        self._stopped = True
        self._wake.set()

    def _hurry(self) -> None:
        self._interrupted = time.monotonic()
        self._wake.set()

    def _watch(self, interrupt: Interrupt) -> None:
        while (left := self._left()) > 0:
            self._wake.wait(left)
            self._wake.clear()
            if self._stopped:
                return
        away = f"{self._engine} has not come back for {self.pulse.age:.3g} s, and was last at {self.pulse.where()}"
        error: BaseException = RunError(f"{away}; if it may need as long as that, raise --producer-deadline")
        if self._interrupted is not None:
            self._say(f"{away}: the run ends without this step")
            error = KeyboardInterrupt()
        self.pulse.given_up = True
        self._wake.clear()
        if not interrupt.end(error):
            self._say(f"warning: {away}; end this process if it stays away")
        elif not self._wake.wait(_CLOSING_SECONDS) and not self._stopped:
            print(f"error: {str(error) or 'interrupted'}; the run could not be closed and is killed", file=sys.stderr, flush=True)
            os._exit(130 if isinstance(error, KeyboardInterrupt) else 1)

    def _left(self) -> float:
        """Seconds until the engine has been away for too long, if it stays away."""
        left = self._deadline - self.pulse.age
        if self._interrupted is None:
            return left
        patience = min(self._deadline, _INTERRUPTED_SECONDS)
        return min(left, patience - min(self.pulse.age, time.monotonic() - self._interrupted))
