"""Report the failure of one rank to all others while they wait for it in a forward or a backward.

A thread of each rank reads the store from time to time. Without it, an error that only one rank knows would appear on the others as a wait
that ends at the deadline: neither gloo nor NCCL reports a rank that stopped calling.
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
"""Seconds between two reads."""

_TELL = 5.0
"""Seconds that a failed rank waits for the others to read its report."""

_KEY = "rlcore/failed"


class FailureWatch:
    """A watch of one rank.

    ``store``: a separate connection, since a connection of torch serves one call at a time. ``stop``: called in the thread once a failure
    is known, to end waits that would not end by themselves.
    """

    def __init__(self, store: Any, rank: int, size: int, stop: Callable[[], None]) -> None:
        self.rank, self.size = rank, size
        self._store, self._stop = store, stop
        self._failure: tuple[int, str] | None = None
        self._known, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._look, name="rlcore-failure-watch", daemon=True)
        self._thread.start()

    def tell(self, said: str) -> None:
        """Report that this rank failed; the first report counts. Returns when all ranks know, or after a few seconds."""
        self._end_thread()
        with suppress(RuntimeError):  # the store is gone if rank 0 is
            self._store.compare_set(_KEY, "", json.dumps([self.rank, said]))
            self._read()
            self._store.wait([f"{_KEY}/{rank}" for rank in range(self.size)], timedelta(seconds=_TELL))

    def failure(self, patience: float = 2 * _EVERY) -> tuple[int, str] | None:
        """Return (rank, message) of the rank that failed first; None if there is no report within ``patience`` seconds."""
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
        with suppress(RuntimeError):  # the store is gone: waiting ranks find out by themselves
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
