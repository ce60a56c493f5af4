"""Weights on one host: the trainer copies a version once into memory that all producers map.

The trainer stops only for that copy. A thread then computes the checksums, bucket by bucket, and producers verify each bucket as soon as
its checksums are available. A version is complete when its last bucket is verified. A buffer that a producer holds is never written again.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence

import numpy as np
import xxhash
from rlcore_plugin_workers.background import BackgroundPublisher, HostVersion

from rlcore.api.weights import HostLayout, OnFailure, WeightsError, WeightTransfer
from rlcore_plugin_processes.shared_readers import Offer, Readers
from rlcore_plugin_processes.shared_receiver import SharedReceiver
from rlcore_plugin_processes.shared_wire import SharedAddress, SharedMemory, WireKind, WireMessage

__all__ = ["SharedPublisher", "SharedTransfer"]


class SharedPublisher(BackgroundPublisher):
    """A publisher over anonymous shared memory; see the module. Linux only.

    ``deadline``: the seconds that a receiver may hold a version after a newer one is available. After that its process is ended, so that it
    is replaced.
    """

    def __init__(self, deadline: float, bucket_bytes: int, on_failure: OnFailure | None = None) -> None:
        self._changed = threading.Condition()
        self._readers = Readers(self._changed, deadline, lambda said: self.on_drop(said), lambda name: self.on_end(name), self._fail)
        super().__init__(deadline, bucket_bytes, on_failure)

    def address(self) -> SharedAddress:
        """Return the address to which receivers of this host connect."""
        return SharedAddress(os.uname().nodename, os.getpid(), self._readers.name)

    def _send(self, held: HostVersion) -> None:
        layout, memory = held.layout, held.memory
        text = layout.to_bytes()
        checksums_at, text_at = layout.size, layout.size + 8 * len(layout.offsets)
        memory.flat[text_at : text_at + len(text)] = np.frombuffer(text, np.uint8)
        checksums = memory.flat[checksums_at:text_at].view(np.uint64)
        with self._changed:
            numbers = (memory.number, memory.size, text_at, len(text), xxhash.xxh3_64_intdigest(text))
            in_use = tuple(other.number for other in self._buffers)
            offer = Offer(layout.version, memory, WireMessage(WireKind.BEGIN, layout.version, (*numbers, *in_use)), [])
            self._readers.offer(offer)
        for index, places in enumerate(layout.buckets(self._bucket_bytes) or [range(0)]):
            sealed = checksums[places.start : places.stop]
            sealed[:] = layout.seal(memory.flat, places)
            with self._changed:
                if self._closed:
                    return
                digest = xxhash.xxh3_64_intdigest(sealed.tobytes())
                offer.sealed.append(WireMessage(WireKind.BUCKET, layout.version, (index, digest, self._bucket_bytes)))
                self._readers.offer(offer)

    def _needed(self, layout: HostLayout) -> int:
        return layout.size + 8 * len(layout.offsets) + len(layout.to_bytes())

    def _make_memory(self, layout: HostLayout) -> SharedMemory:
        try:
            return SharedMemory(self._needed(layout))
        except OSError as error:
            raise WeightsError(
                f"version {layout.version} needs {self._needed(layout) / 1e6:.0f} MB of shared memory, which this host lacks: {error}"
            ) from None

    def _withdraw(self) -> None:
        self._readers.withdraw()

    def _readers_of(self, memory: SharedMemory) -> Sequence[object]:
        return self._readers.holding(memory)

    def _grace(self, memory: SharedMemory) -> float:
        return self._readers.grace(memory)

    def _end_readers(self, memory: SharedMemory) -> None:
        for reader in self._readers.holding(memory):
            self._readers.end(reader, "kept an old version while another producer kept a second one, and there was no memory for a fourth")

    def _free(self) -> None:
        self._readers.close()


class SharedTransfer(WeightTransfer):
    """The transfer ``shared``; publisher and receivers are processes of one user on one host."""

    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> SharedPublisher:
        """See WeightTransfer. The buffers are in host memory, whatever the trainer's device."""
        return SharedPublisher(deadline, bucket_bytes, on_failure)

    def receiver(self, *, name: str, address: SharedAddress, deadline: float, on_news: Callable[[], None]) -> SharedReceiver:
        """See WeightTransfer."""
        return SharedReceiver(name, address, deadline, on_news)
