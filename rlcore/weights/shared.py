"""Weights on one host: the trainer copies a version once into memory that all producers map, and they follow chunk by chunk.

Two buffers: one is written while the other is read. A version counts only after its last message, which brings the checksums; a buffer
is written again only when every receiver that was told of it has let go of it, or has died.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import xxhash

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.transport import OnFailure, WeightTransfer
from rlcore.weights.background import BackgroundPublisher
from rlcore.weights.manifest import Manifest, write_tensors
from rlcore.weights.shared_readers import Reader, Readers
from rlcore.weights.shared_receiver import SharedReceiver
from rlcore.weights.shared_wire import Buffer, SharedAddress, WireKind, WireMessage

__all__ = ["SharedPublisher", "SharedTransfer"]


@dataclass(slots=True, eq=False)
class _Transfer:
    """A version in a buffer: tensors first, behind them the checksums, then the manifest."""

    manifest: Manifest
    buffer: Buffer
    checksums_at: int
    manifest_at: int
    text: bytes
    reached: int = 0
    end: WireMessage | None = None

    def begin(self) -> WireMessage:
        digest = xxhash.xxh3_64_intdigest(self.text)
        return WireMessage(WireKind.BEGIN, self.manifest.version, self.buffer.number, self.manifest_at, len(self.text), digest)

    def progress(self) -> WireMessage:
        return WireMessage(WireKind.PROGRESS, self.manifest.version, self.reached)

    def checksums(self) -> np.ndarray:
        return self.buffer.flat[self.checksums_at : self.checksums_at + 8 * len(self.manifest.sealed)].view(np.uint64)


class SharedPublisher(BackgroundPublisher):
    """Publisher over anonymous shared memory; see the module. Linux only.

    ``deadline``: seconds that a version waits for a buffer that receivers still read.
    """

    def __init__(self, deadline: float, on_failure: OnFailure | None = None) -> None:
        self._changed = threading.Condition()
        self._slots: list[Buffer | None] = [None, None]
        self._slot = 0
        self._current: _Transfer | None = None
        self._newest: _Transfer | None = None
        self._readers = Readers(self._changed, self._greet, self._fail)
        super().__init__(deadline, on_failure)

    def address(self) -> SharedAddress:
        """Where receivers of this host connect."""
        return SharedAddress(os.uname().nodename, os.getpid(), self._readers.name)

    def _free(self) -> None:
        self._readers.close()
        with self._changed:
            self._current = self._newest = None
            for buffer in self._slots:
                if buffer is not None:
                    buffer.close()
            self._slots = [None, None]

    def _ready(self) -> None:
        """Wait for a buffer that nobody reads, and choose it."""
        until = time.monotonic() + self._deadline
        while not self._closed:
            free = [slot for slot, buffer in enumerate(self._slots) if buffer is None or not self._readers.holding(buffer)]
            if free:
                # Not the newest where there is a choice: who connects now can have it until the next one begins.
                newest = self._newest.buffer if self._newest is not None else None
                self._slot = min(free, key=lambda slot: newest is not None and self._slots[slot] is newest)
                if newest is not None and self._slots[self._slot] is newest:
                    self._newest = None
                return
            if not self._changed.wait(max(0.0, until - time.monotonic())) and time.monotonic() >= until:
                raise self._standstill()

    def _standstill(self) -> WeightsError:
        holders = {
            str(reader): min(reader.holds) for buffer in self._slots if buffer is not None for reader in self._readers.holding(buffer)
        }
        who = ", ".join(f"{name} since version {version}" for name, version in holders.items())
        return WeightsError(
            f"weights of version {self._published} waited {self._deadline:g} s for a buffer, and both are still read: {who}; look whether "
            "it is stopped or overloaded, or give it more time with --weights-deadline"
        )

    def _send(self, snapshot: Snapshot) -> None:
        transfer = self._prepare(snapshot)
        with self._changed:
            self._current = transfer
            for reader in self._readers.present():
                self._greet(reader)
            self._readers.look_up()
        checksums = transfer.checksums()
        for reached in write_tensors(snapshot, transfer.manifest, transfer.buffer.flat, checksums):
            with self._changed:
                if self._closed:
                    return
                transfer.reached = reached
                self._readers.tell(transfer.progress(), snapshot.version)
        with self._changed:
            transfer.reached = transfer.manifest.size
            digest = xxhash.xxh3_64_intdigest(checksums.data)
            transfer.end = WireMessage(WireKind.END, snapshot.version, transfer.checksums_at, d=digest)
            self._newest, self._current = transfer, None
            self._readers.tell(transfer.end, snapshot.version)
            self._changed.notify_all()

    def _prepare(self, snapshot: Snapshot) -> _Transfer:
        """A buffer that is large enough, the manifest in it."""
        manifest = Manifest.of(snapshot)
        text = manifest.to_bytes()
        manifest_at = manifest.size + 8 * len(manifest.sealed)
        buffer = self._slots[self._slot]
        if buffer is None or buffer.size < manifest_at + len(text):
            with self._changed:
                self._slots[self._slot] = None
                if buffer is not None:
                    for reader in self._readers.present():
                        reader.detach(buffer)
                    buffer.close()
            buffer = Buffer(manifest_at + len(text))
            with self._changed:
                self._slots[self._slot] = buffer
        buffer.flat[manifest_at : manifest_at + len(text)] = np.frombuffer(text, np.uint8)
        return _Transfer(manifest, buffer, manifest.size, manifest_at, text)

    def _greet(self, reader: Reader) -> None:
        """Tell a receiver of the version under way, or of the newest where none is; under the lock."""
        transfer = self._current or self._newest
        if transfer is None:
            return
        reader.attach(transfer.buffer)
        reader.holds[transfer.manifest.version] = transfer.buffer
        reader.line.say(transfer.begin())
        if transfer.reached:
            reader.line.say(transfer.progress())
        if transfer.end is not None:
            reader.line.say(transfer.end)


class SharedTransfer(WeightTransfer):
    """The transfer ``shared``: publisher and receivers are processes of one user on one host."""

    def publisher(self, *, deadline: float, device: str = "cpu", on_failure: OnFailure | None = None) -> SharedPublisher:
        """See WeightTransfer. Snapshots are in host memory, so the device does not matter."""
        return SharedPublisher(deadline, on_failure)

    def receiver(self, *, name: str, address: SharedAddress, deadline: float, on_news: Callable[[], None]) -> SharedReceiver:
        """See WeightTransfer."""
        return SharedReceiver(name, address, deadline, on_news)
