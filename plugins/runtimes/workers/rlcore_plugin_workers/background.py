"""What transfers through host memory do alike: the trainer copies a version into a buffer that is used again and again, and one thread
sends it; what arrived waits to be asked for.
"""

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
"""Buffers that may be there at a time: two in turns, and one that a late reader still maps."""


class HostMemory:
    """A buffer for one version, used again for later ones: ``flat`` uint8[size]. ``abandoned``: somebody who was given up may read it."""

    abandoned = False

    def __init__(self, size: int) -> None:
        self.size = size
        self.flat: np.ndarray = np.empty(size, np.uint8)

    def close(self) -> None:
        """Give it back."""
        self.flat = np.zeros(0, np.uint8)


@dataclass(frozen=True, slots=True, eq=False)
class HostVersion:
    """A version in a buffer."""

    layout: HostLayout
    memory: Any
    """A ``HostMemory``, or what the child makes in its place."""


class BackgroundPublisher(Publisher):
    """Copies in the caller's thread; one thread sends, one version after the other. A version that is published before the last one was
    begun replaces it.

    Memory: two buffers in turns. One that a reader still uses is left to that reader and never rewritten; the next version takes a new one.
    A reader that would make it four copies is ended first (``_end_readers``). A child sets itself up before it calls this constructor,
    which starts the thread.
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
    """Guards and announces whatever changes; the child makes it."""

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
        """See Publisher. A transfer under way is given up where the transport can; receivers learn that this is no accident."""
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

    # --- what a child says -------------------------------------------------------------------------------------------

    @abstractmethod
    def _send(self, held: HostVersion) -> None:
        """Bring it to all receivers, or to where they fetch it. In the thread, not under ``_changed``; its buffer stays as it is until a
        newer version is begun."""

    def _make_memory(self, layout: HostLayout) -> Any:
        """A buffer that holds the version: with ``flat``, ``size``, ``abandoned`` and ``close()``."""
        return HostMemory(self._needed(layout))

    def _needed(self, layout: HostLayout) -> int:
        """Bytes of a buffer for it."""
        return layout.size

    def _withdraw(self) -> None:
        """A newer version is about to be sent, and the buffer of the last one may be written again: nobody may begin to read that now.
        Under ``_changed``."""

    def _readers_of(self, memory: Any) -> Sequence[object]:
        """Who may be reading this buffer, the thread aside; under ``_changed``."""
        return ()

    def _grace(self, memory: Any) -> float:
        """Seconds that whoever reads it may still take to let go of it, before it is ended; under ``_changed``."""
        return 0.0

    def _end_readers(self, memory: Any) -> None:
        """End whoever may be reading it; under ``_changed``. ``_readers_of`` is () as soon as they are gone."""

    def _interrupt(self) -> None:
        """End a wait of the thread that does not look at ``_closed``."""

    def _free(self) -> None:
        """Free everything of the child; the thread has ended. May be called twice."""

    # --- memory ------------------------------------------------------------------------------------------------------

    def _acquire_memory(self, layout: HostLayout) -> Any:
        """A buffer that nobody reads: neither a receiver nor the thread, which reads the newest version."""
        with self._changed:
            self._waiting = None  # nobody has begun it
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
        """Wait for its readers as long as they have time, then end them."""
        if self._left_by_readers(memory, self._grace(memory)):
            return
        self._end_readers(memory)
        if not self._left_by_readers(memory, self._deadline):
            who = ", ".join(map(str, self._readers_of(memory)))
            raise WeightsError(f"{who} was ended, and is not gone after {self._deadline:g} s: its memory is needed for weights")
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
        except Exception as error:  # a thread has nobody above it: publish() says it
            self._fail(f"version {self._published} could not be sent: {type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        # The sentence is kept, not the exception: its traceback would keep buffers alive.
        with self._changed:
            if self._closed:
                return
            self._failure = self._failure or reason  # a second one is a consequence of the first
            self._waiting = None
        self.on_failure(WeightsError(reason))


class BackgroundReceiver(Receiver):
    """One thread fetches, and says ``_arrived`` or ``_fail``; the owner asks when it likes.

    A child sets itself up before it calls ``_start``.
    """

    def __init__(self, name: str, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._lock = threading.Lock()
        self._newest: Snapshot | None = None
        self._taken: set[int] = set()
        self._failure = ""
        self._closed = False

    def newer_than(self, version: int) -> Snapshot | None:
        """See Receiver. A version that was released is not offered again."""
        with self._lock:
            if self._failure:
                raise WeightsError(self._failure)
            if self._newest is None or self._newest.version <= version:
                return None
            self._taken.add(self._newest.version)
            return self._newest

    def release(self, version: int) -> None:
        """See Receiver. Only what ``newer_than`` handed out can be released."""
        with self._lock:
            for old in [taken for taken in self._taken if taken <= version]:
                self._taken.discard(old)
                if self._newest is not None and self._newest.version == old:
                    self._newest = None
                self._drop_version(old)

    def close(self) -> None:
        """See Receiver. Views that were handed out stay readable as long as they are referred to."""
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
        """Wait for the next thing to happen and deal with it; False where nothing can come any more."""

    @abstractmethod
    def _interrupt(self) -> None:
        """End the wait of ``_fetch``."""

    def _drop_version(self, version: int) -> None:
        """Nobody reads this version any more; under ``_lock``."""

    def _free(self) -> None:
        """Free everything; the thread has ended. May be called twice."""

    def _arrived(self, snapshot: Snapshot) -> None:
        """It is whole and verified. One that was never asked for makes room."""
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
        except Exception as error:  # a thread has nobody above it: newer_than() says it
            self._fail(f"{type(error).__name__} while it received weights: {error}")
        self._finished()

    def _finished(self) -> None:
        """In the thread, after its last ``_fetch``, well or not: hang up, so that nobody waits for this end."""
