"""Transfer of weights inside one process: a single copy, which the receiver reads in place. For a trainer and an engine that alternate."""

from __future__ import annotations

import threading
from collections.abc import Callable

import numpy as np

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, WeightSource
from rlcore.contracts.weight_transfer import OnFailure, Publisher, Receiver, WeightTransfer
from rlcore.weights.host_layout import HostLayout

__all__ = ["MemoryPublisher", "MemoryReceiver", "MemoryTransfer"]


class MemoryPublisher(Publisher):
    """Holds the newest version. Its memory is reused for a later version once no receiver holds it."""

    def __init__(self, bucket_bytes: int, on_failure: OnFailure | None = None) -> None:
        super().__init__(on_failure)
        self.newest: tuple[HostLayout, np.ndarray, np.ndarray] | None = None
        self._bucket_bytes = bucket_bytes
        self._spare = np.zeros(0, np.uint8)
        self.lock = threading.Lock()
        self._receivers: list[MemoryReceiver] = []
        self._closed = False

    def address(self) -> MemoryPublisher:
        """Return the publisher itself, because the receivers are in the same process."""
        return self

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        """See Publisher."""
        with self.lock:
            if self._closed:
                raise WeightsError(f"version {version} was published after the transport was closed")
            if self.newest is not None and version <= self.newest[0].version:
                raise WeightsError(f"version {version} was published after {self.newest[0].version}; versions must increase")
            layout = HostLayout(version=version, manifest=source.manifest(), probe=probe)
            memory = self._spare if len(self._spare) >= layout.size else np.empty(layout.size, np.uint8)
            layout.fill(source, memory, self._bucket_bytes)
            older = self.newest
            self.newest = (layout, memory, layout.seal(memory, range(len(layout.offsets))))
            free = older is not None and not any(older[0].version in receiver.taken for receiver in self._receivers)
            self._spare = older[1] if older is not None and free else np.zeros(0, np.uint8)
            receivers = tuple(self._receivers)
        for receiver in receivers:
            receiver.on_news()

    def close(self) -> None:
        """See Publisher."""
        with self.lock:
            self._closed = True
            self.newest = None
            self._receivers.clear()

    def _join(self, receiver: MemoryReceiver) -> None:
        with self.lock:
            self._receivers.append(receiver)
            waits = self.newest is not None
        if waits:
            receiver.on_news()

    def _leave(self, receiver: MemoryReceiver) -> None:
        with self.lock:
            if receiver in self._receivers:
                self._receivers.remove(receiver)


class MemoryReceiver(Receiver):
    """Asks the publisher for its newest version and verifies it. ``taken`` holds versions that it received and has not released."""

    def __init__(self, name: str, address: MemoryPublisher, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self.taken: set[int] = set()
        self._publisher = address
        self._released = -1
        address._join(self)

    def newer_than(self, version: int) -> Snapshot | None:
        """See Receiver. A version is available as soon as ``publish`` has returned."""
        with self._publisher.lock:
            newest = self._publisher.newest
            if newest is None or newest[0].version <= max(version, self._released):
                return None
            layout, memory, checksums = newest
            try:
                snapshot = layout.verified(memory, checksums)
            except WeightsError as error:
                raise WeightsError(f"producer {self.name}: {error}") from error
            self.taken.add(layout.version)
            return snapshot

    def release(self, version: int) -> None:
        """See Receiver. A released version is not offered again."""
        self._released = max(self._released, version)
        self.taken = {taken for taken in self.taken if taken > version}

    def close(self) -> None:
        """See Receiver."""
        self._publisher._leave(self)


class MemoryTransfer(WeightTransfer):
    """The transfer ``memory``."""

    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> MemoryPublisher:
        """See WeightTransfer. A deadline and a device have no meaning here."""
        return MemoryPublisher(bucket_bytes, on_failure)

    def receiver(self, *, name: str, address: MemoryPublisher, deadline: float, on_news: Callable[[], None]) -> MemoryReceiver:
        """See WeightTransfer."""
        return MemoryReceiver(name, address, on_news)
