"""Ctrl-C: the first one ends the run after this step, the second one ends it immediately."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from types import FrameType, TracebackType
from typing import Any, TypeVar

from rlcore.contracts.runtime_interface import Interrupt

__all__ = ["SignalInterrupt", "result_of"]

T = TypeVar("T")

_SIGNAL_SECONDS = 1.0
"""The seconds of one wait of the main thread. CPython calls a signal's handler between two waits; a signal that arrives just before a wait
does not end it."""


class SignalInterrupt(Interrupt):
    """A context in which the first SIGINT, SIGTERM or SIGHUP sets ``requested``, and the second raises KeyboardInterrupt.

    SIGHUP means that a terminal or a connection is gone. The handler of the first signal calls ``wakes``. Outside the main thread, the
    context installs no handlers and only holds the flag.
    """

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__()
        self._ending: BaseException | None = None
        self._tell = tell
        self._teller: threading.Thread | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> SignalInterrupt:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
                    self._before[number] = signal.signal(number, self._handle)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if self._teller is not None:
            self._teller.join()

    def end(self, error: BaseException) -> bool:
        """End the run with ``error``, from any thread except the main one; see Interrupt. Return False if no handlers are installed."""
        main = threading.main_thread().ident
        if not self._before or main is None:
            return False
        self._ending = error
        signal.pthread_kill(main, signal.SIGINT)
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self._ending is not None:
            raise self._ending
        if self.requested:
            raise KeyboardInterrupt
        self.requested = True
        for wake in self.wakes:
            wake()
        sentence = "interrupted: this step is finished and saved, then the run ends (a second interrupt stops it now)"
        # The main thread may be writing to the same stream, which does not allow a second call from the same thread.
        self._teller = threading.Thread(target=self._tell, args=(sentence,), name="interrupted")
        self._teller.start()


def result_of(call: Future[T]) -> T:
    """Return the result of a call. The handlers of signals can run during the wait."""
    while not call.done():
        wait((call,), _SIGNAL_SECONDS)
    return call.result()
