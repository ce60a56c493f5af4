"""What all transports do alike: the newest version waits for one thread, and what arrived waits to be asked for."""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Callable

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.transport import OnFailure, Publisher, Receiver

__all__ = ["BackgroundPublisher", "BackgroundReceiver"]


class BackgroundPublisher(Publisher):
    """One thread sends, one version after the other; a version that is published meanwhile replaces the one that waits.

    A child sets itself up before it calls this constructor, which starts the thread.
    """

    def __init__(self, deadline: float, on_failure: OnFailure | None = None) -> None:
        super().__init__(on_failure)
        self._deadline = deadline
        self._published = -1
        self._waiting: Snapshot | None = None
        self._failure = ""
        self._closed = False
        self._thread = threading.Thread(target=self._send_forever, name="weights-publisher", daemon=True)
        self._thread.start()

    _changed: threading.Condition
    """Guards and announces whatever changes; the child makes it."""

    def publish(self, snapshot: Snapshot) -> None:
        """See Publisher. Its tensors are read in the background, so nobody may write to them afterwards."""
        with self._changed:
            if self._failure:
                raise WeightsError(self._failure)
            if self._closed:
                raise WeightsError(f"version {snapshot.version} was published after the transport was closed")
            if snapshot.version <= self._published:
                raise WeightsError(f"snapshot {snapshot.version} was published after {self._published}; versions must rise")
            self._published = snapshot.version
            self._waiting = snapshot
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

    def _interrupt(self) -> None:
        """End a wait of the thread that does not look at ``_closed``."""

    def _ready(self) -> None:
        """Wait until there is room for a version, under ``_changed``; WeightsError where the deadline passes."""

    @abstractmethod
    def _send(self, snapshot: Snapshot) -> None:
        """Bring it to all receivers, or to where they fetch it. In the thread, not under ``_changed``."""

    @abstractmethod
    def _free(self) -> None:
        """Free everything; the thread has ended. May be called twice."""

    def _next(self) -> Snapshot | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting is not None)
            if not self._closed:
                self._ready()
            snapshot, self._waiting = self._waiting, None
            return snapshot

    def _send_forever(self) -> None:
        try:
            while (snapshot := self._next()) is not None:
                self._send(snapshot)
                del snapshot
        except WeightsError as error:
            self._fail(str(error))
        except Exception as error:  # a thread has nobody above it: publish() says it
            self._fail(f"version {self._published} could not be sent: {type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        # The sentence is kept, not the exception: its traceback would keep buffers alive.
        with self._changed:
            if self._closed:
                return
            self._failure = reason
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
                self._let_go(old)

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

    def _let_go(self, version: int) -> None:
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
                self._let_go(old.version)
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
