"""Tells every rank that one of them failed while the others wait for it inside a forward or a backward.

A thread of each rank looks at the store once in a while. Without it an error that one rank knows would show on the others as a wait that
ends at the deadline: neither gloo nor NCCL tells of a rank that stopped calling.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

__all__ = ["FailureWatch"]

_EVERY = 0.5
"""Seconds between two looks."""

_TELL = 5.0
"""Seconds that a rank that failed waits for the others to have read of it."""

_KEY = "rlcore/failed"


class FailureWatch:
    """``store``: a connection of its own (one of torch serves one call at a time). ``stop``: called in the thread once a failure is known,
    to end waits that would not end by themselves."""

    def __init__(self, store: Any, rank: int, size: int, stop: Callable[[], None]) -> None:
        self.rank, self.size = rank, size
        self._store, self._stop = store, stop
        self._failure: tuple[int, str] | None = None
        self._known, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, name="rlcore-failure-watch", daemon=True)
        self._thread.start()

    def tell(self, said: str) -> None:
        """This rank failed; the first of several that say so counts. Returns when all know, or some seconds later."""
        self._end_thread()
        with suppress(RuntimeError):  # the store is gone with rank 0
            self._store.compare_set(_KEY, "", json.dumps([self.rank, said]))
            self._read()
            self._store.wait([f"{_KEY}/{rank}" for rank in range(self.size)], timedelta(seconds=_TELL))

    def failure(self, patience: float = 2 * _EVERY) -> tuple[int, str] | None:
        """(rank, what it said) of the rank that failed first; None if none has said so within ``patience`` seconds."""
        self._known.wait(patience)
        return self._failure

    def close(self) -> None:
        """End the thread."""
        self._end_thread()

    def _end_thread(self) -> None:
        self._over.set()
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _look(self) -> None:
        with suppress(RuntimeError):  # the store is gone: whoever waits finds out by itself
            while not self._over.wait(_EVERY):
                if self._read():
                    self._stop()
                    return

    def _read(self) -> bool:
        if not self._store.check([_KEY]):
            return False
        rank, said = json.loads(self._store.get(_KEY))
        self._failure = (int(rank), str(said))
        self._known.set()
        self._store.set(f"{_KEY}/{self.rank}", "")
        return True
