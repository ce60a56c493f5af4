"""The common part of weight transfers through host memory. The trainer copies a version into a reusable buffer, and one thread sends it. A
received version waits until its owner asks for it."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlcore.api.weights import HostLayout, OnFailure, Probe, Publisher, Receiver, Snapshot, WeightsError, WeightSource

__all__ = ["BackgroundPublisher", "BackgroundReceiver", "HostMemory", "HostVersion"]

_COPIES = 3
"""The greatest number of buffers: two that alternate, and one that a late reader still maps."""


class HostMemory:
    """A reusable buffer for one version: ``flat`` uint8[size]. ``abandoned``: a reader that was given up may still read it."""

    abandoned = False

    def __init__(self, size: int) -> None:
        self.size = size
        self.flat: np.ndarray = np.empty(size, np.uint8)

    def close(self) -> None:
        """Free the buffer."""
        self.flat = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class HostVersion:
    """A version in a buffer."""

    layout: HostLayout
    memory: Any
    """A ``HostMemory``, or the subclass's replacement for it."""


class BackgroundPublisher(Publisher):
    """Copies in the caller's thread; one thread sends the versions, one after the other. A version that is published before the thread has
    begun the previous one replaces it.

    Two buffers alternate. A buffer that a reader still uses is left to that reader and never rewritten; the next version takes a new one.
    If that would make four copies, the late reader is ended first (``_end_readers``). A subclass initializes itself before it calls this
    constructor, which starts the thread.
    """

    def __init__(self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None = None) -> None:
        super().__init__(on_failure)
        self._deadline = deadline
        self._bucket_bytes = bucket_bytes
        self._published = -1
        self._waiting: HostVersion | None = None
        self._newest: HostVersion | None = None
        self._buffers: list[Any] = []
        self._failure = ""
        self._closed = False
        self._thread = threading.Thread(target=self._send_forever, name="weights-publisher", daemon=True)
        self._thread.start()

    _changed: threading.Condition
    """Guards the state and announces its changes. The subclass creates it."""

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        """See Publisher."""
        self._check(version)
        layout = HostLayout(version=version, manifest=source.manifest(), probe=probe)
        memory = self._acquire_memory(layout)
        layout.fill(source, memory.flat, self._bucket_bytes)
        with self._changed:
            self._check(version)
            self._published = version
            self._waiting = HostVersion(layout, memory)
            self._changed.notify_all()

    def close(self) -> None:
        """See Publisher. Abort a transfer in progress if the transport can. Receivers learn that the end is intended."""
        with self._changed:
            self._closed = True
            self._waiting = None
            self._changed.notify_all()
        self._interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._free()
        for memory in self._buffers:
            memory.close()
        self._buffers, self._newest = [], None

    # --- what a subclass implements ----------------------------------------------------------------------------------

    @abstractmethod
    def _send(self, held: HostVersion) -> None:
        """Send the version to all receivers, or to the place from which they fetch it. This runs in the thread, not under ``_changed``. The
        buffer does not change until a newer version is begun."""

    def _make_memory(self, layout: HostLayout) -> Any:
        """Return a buffer that holds the version: an object with ``flat``, ``size``, ``abandoned`` and ``close()``."""
        return HostMemory(self._needed(layout))

    def _needed(self, layout: HostLayout) -> int:
        """Return the size of a buffer for the layout in bytes."""
        return layout.size

    def _withdraw(self) -> None:
        """Prevent new readers of the last version: a newer one is about to be sent, and the buffer of the last one may be rewritten. Called
        under ``_changed``."""

    def _readers_of(self, memory: Any) -> Sequence[object]:
        """Return the possible readers of this buffer, without the thread. Called under ``_changed``."""
        return ()

    def _grace(self, memory: Any) -> float:
        """Return the seconds that the readers of a buffer may still take before they are ended. Called under ``_changed``."""
        return 0.0

    def _end_readers(self, memory: Any) -> None:
        """End all possible readers of a buffer. Called under ``_changed``. ``_readers_of`` returns () when they are gone."""

    def _interrupt(self) -> None:
        """End a wait of the thread that does not check ``_closed``."""

    def _free(self) -> None:
        """Free all resources of the subclass; the thread has ended. May be called twice."""

    # --- memory ------------------------------------------------------------------------------------------------------

    def _acquire_memory(self, layout: HostLayout) -> Any:
        """Return a buffer without readers: neither a receiver reads it nor the thread, which reads the newest version."""
        with self._changed:
            self._waiting = None  # the thread has not begun it
            while len(late := [memory for memory in self._others() if self._readers_of(memory)]) + 1 >= _COPIES and not self._closed:
                self._reclaim(late[0])
            size = self._needed(layout)
            free = [memory for memory in self._others() if not self._readers_of(memory)]
            chosen = next((memory for memory in free if memory.size >= size and not memory.abandoned), None)
            for memory in free:
                if memory is not chosen:
                    self._buffers.remove(memory)
                    memory.close()
            if chosen is None:
                chosen = self._make_memory(layout)
                self._buffers.append(chosen)
            return chosen

    def _others(self) -> list[Any]:
        newest = self._newest.memory if self._newest is not None else None
        return [memory for memory in self._buffers if memory is not newest]

    def _reclaim(self, memory: Any) -> None:
        """Wait for the readers of a buffer during their grace period, then end them."""
        if self._left_by_readers(memory, self._grace(memory)):
            return
        self._end_readers(memory)
        if not self._left_by_readers(memory, self._deadline):
            who = ", ".join(map(str, self._readers_of(memory)))
            raise WeightsError(
                f"{who} was killed, but its process still exists after {self._deadline:g} s, and its memory is needed for weights"
            )
        self._buffers.remove(memory)
        memory.close()

    def _left_by_readers(self, memory: Any, seconds: float) -> bool:
        return self._changed.wait_for(lambda: self._closed or not self._readers_of(memory), seconds)

    # --- the thread --------------------------------------------------------------------------------------------------

    def _check(self, version: int) -> None:
        if self._failure:
            raise WeightsError(self._failure)
        if self._closed:
            raise WeightsError(f"version {version} was published after the transport was closed")
        if version <= self._published:
            raise WeightsError(f"version {version} was published after {self._published}; versions must rise")

    def _next(self) -> HostVersion | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            held, self._waiting = self._waiting, None
            if held is not None:
                self._newest = held
                self._withdraw()
            return held

    def _send_forever(self) -> None:
        try:
            while (held := self._next()) is not None:
                self._send(held)
                del held
        except WeightsError as error:
            self._fail(str(error))
        except Exception as error:  # no caller can catch it here; publish() raises it
            self._fail(f"version {self._published} could not be sent: {type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        # Keep the message and not the exception, whose traceback would keep buffers alive.
        with self._changed:
            if self._closed:
                return
            self._failure = self._failure or reason  # a second one is a consequence of the first
            self._waiting = None
        self.on_failure(WeightsError(reason))


class BackgroundReceiver(Receiver):
    """A receiver whose thread fetches versions, and calls ``_arrived`` or ``_fail``. The owner asks when it likes.

    A subclass initializes itself before it calls ``_start``.
    """

    def __init__(self, name: str, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._lock = threading.Lock()
        self._newest: Snapshot | None = None
        self._taken: set[int] = set()
        self._failure = ""
        self._closed = False

    def newer_than(self, version: int) -> Snapshot | None:
        """See Receiver. A released version is not offered again."""
        with self._lock:
            if self._failure:
                raise WeightsError(self._failure)
            if self._newest is None or self._newest.version <= version:
                return None
            self._taken.add(self._newest.version)
            return self._newest

    def release(self, version: int) -> None:
        """See Receiver. Only versions that ``newer_than`` returned can be released."""
        with self._lock:
            for old in [taken for taken in self._taken if taken <= version]:
                self._taken.discard(old)
                if self._newest is not None and self._newest.version == old:
                    self._newest = None
                self._drop_version(old)

    def close(self) -> None:
        """See Receiver. Views that were handed out stay readable as long as references to them exist."""
        with self._lock:
            first, self._closed = not self._closed, True
            self._newest = None
        if first:
            self._interrupt()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._free()

    def _start(self) -> None:
        self._thread = threading.Thread(target=self._fetch_forever, name=f"weights-{self.name}", daemon=True)
        self._thread.start()

    @abstractmethod
    def _fetch(self) -> bool:
        """Wait for the next event and handle it. Return False if no event can follow."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End the wait of ``_fetch``."""

    def _drop_version(self, version: int) -> None:
        """Free a version that no caller reads any more. Called under ``_lock``."""

    def _free(self) -> None:
        """Free all resources; the thread has ended. May be called twice."""

    def _arrived(self, snapshot: Snapshot) -> None:
        """Offer a complete and verified version. A version that the owner never took is freed."""
        with self._lock:
            if self._closed:
                return
            old, self._newest = self._newest, snapshot
            if old is not None and old.version not in self._taken:
                self._drop_version(old.version)
        self.on_news()

    def _fail(self, reason: str) -> None:
        with self._lock:
            if self._closed:
                return
            self._failure = f"producer {self.name}: {reason}"
            self._newest = None
        self.on_news()

    def _fetch_forever(self) -> None:
        try:
            while self._fetch():
                pass
        except WeightsError as error:
            self._fail(str(error))
        except Exception as error:  # no caller can catch it here; newer_than() raises it
            self._fail(f"{type(error).__name__} while it received weights: {error}")
        self._finished()

    def _finished(self) -> None:
        """Close the connection, in the thread, after its last ``_fetch`` or an error, so that the publisher does not wait for this
        receiver."""
