"""Weights inside one process: the receiver is handed the very snapshot that was published. Nothing is copied, and nothing waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.transport import OnFailure, Publisher, Receiver, WeightTransfer

__all__ = ["MemoryPublisher", "MemoryReceiver", "MemoryTransfer"]


class MemoryPublisher(Publisher):
    """Holds the newest snapshot. A snapshot is immutable, so a reader that still uses an old one is undisturbed."""

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        super().__init__(on_failure)
        self.newest: Snapshot | None = None
        self._lock = threading.Lock()
        self._receivers: list[MemoryReceiver] = []
        self._closed = False

    def address(self) -> MemoryPublisher:
        """The publisher itself: the receivers live in the same process."""
        return self

    def publish(self, snapshot: Snapshot) -> None:
        """See Publisher."""
        with self._lock:
            if self._closed:
                raise WeightsError(f"version {snapshot.version} was published after the transport was closed")
            if self.newest is not None and snapshot.version <= self.newest.version:
                raise WeightsError(f"snapshot {snapshot.version} was published after {self.newest.version}; versions must rise")
            self.newest = snapshot
            receivers = tuple(self._receivers)
        for receiver in receivers:
            receiver.on_news()

    def close(self) -> None:
        """See Publisher."""
        with self._lock:
            self._closed = True
            self.newest = None
            self._receivers.clear()

    def _join(self, receiver: MemoryReceiver) -> None:
        with self._lock:
            self._receivers.append(receiver)
            waits = self.newest is not None
        if waits:
            receiver.on_news()

    def _leave(self, receiver: MemoryReceiver) -> None:
        with self._lock:
            if receiver in self._receivers:
                self._receivers.remove(receiver)


class MemoryReceiver(Receiver):
    """Asks the publisher for its newest snapshot. The engine verifies it, as it does every snapshot: here nothing travels."""

    def __init__(self, name: str, address: MemoryPublisher, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._publisher = address
        self._released = -1
        address._join(self)

    def newer_than(self, version: int) -> Snapshot | None:
        """See Receiver. What was published is here as soon as ``publish`` has returned."""
        newest = self._publisher.newest
        return newest if newest is not None and newest.version > max(version, self._released) else None

    def release(self, version: int) -> None:
        """See Receiver. A version that was released is not offered again."""
        self._released = max(self._released, version)

    def close(self) -> None:
        """See Receiver."""
        self._publisher._leave(self)


class MemoryTransfer(WeightTransfer):
    """The transfer ``memory``."""

    def publisher(self, *, deadline: float, device: str = "cpu", on_failure: OnFailure | None = None) -> MemoryPublisher:
        """See WeightTransfer. There is nothing that a deadline or a device could mean."""
        return MemoryPublisher(on_failure)

    def receiver(self, *, name: str, address: MemoryPublisher, deadline: float, on_news: Callable[[], None]) -> MemoryReceiver:
        """See WeightTransfer."""
        return MemoryReceiver(name, address, on_news)
