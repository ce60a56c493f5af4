"""The producer's end of the shared transport. It verifies bucket by bucket, and returns views of the memory that it maps."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import xxhash
from rlcore_plugin_workers.background import BackgroundReceiver

from rlcore.api.weights import HostLayout, WeightsError
from rlcore_plugin_processes.shared_wire import SharedAddress, WireKind, WireMessage, connect, map_read_only, peer_pid, receive

__all__ = ["UNREQUESTED_SECONDS", "SharedReceiver"]

UNREQUESTED_SECONDS = 1.0
"""The seconds within which an owner asks for a version unless it is busy with longer work, such as an evaluation. Half of the deadline if
that is shorter."""


@dataclass(slots=True)
class _Arriving:
    """A version of which some buckets are verified."""

    layout: HostLayout
    memory: np.ndarray
    verified: int = 0
    checksums: dict[str, int] = field(default_factory=dict)
    buckets: list[range] = field(default_factory=list)

    def __str__(self) -> str:
        return f"version {self.layout.version}, with {self.verified} buckets verified"


class SharedReceiver(BackgroundReceiver):
    """A receiver over anonymous shared memory. One thread receives messages and hashes; ``newer_than`` reports the results.

    Raises WeightsError if no publisher listens at ``address``. ``deadline``: the seconds that a transfer may stall.
    """

    def __init__(self, name: str, address: SharedAddress, deadline: float, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._deadline = deadline
        self._trainer = f"the trainer (process {address.pid} on {address.host})"
        self._maps: dict[int, np.ndarray] = {}
        self._arriving: _Arriving | None = None
        self._forget_at: float | None = None
        self._channel = self._connect(address.name)
        self._say(WireMessage(WireKind.HELLO, text=name))
        self._start()

    def _connect(self, name: str) -> socket.socket:
        try:
            channel = connect(name)
        except OSError as error:
            raise WeightsError(f"producer {self.name} cannot reach {self._trainer} for weights: {error}") from error
        try:
            peer_pid(channel)
        except WeightsError:
            channel.close()
            raise
        return channel

    def _say(self, message: WireMessage) -> None:
        try:
            self._channel.send(message.to_bytes())  # The publisher reads at once, or is gone, which the thread notices.
        except OSError:
            return

    def _fetch(self) -> bool:
        heard = self._read_messages()
        if heard is not None:
            self._handle(*heard)
        return heard is not None

    def _finished(self) -> None:
        self._arriving = None
        self._maps.clear()
        self._interrupt()

    def _forget_unrequested(self) -> None:
        """Release a version that the owner has not taken, because a newer one is available."""
        with self._lock:
            if self._newest is not None and self._newest.version not in self._taken:
                self._drop_version(self._newest.version)
                self._newest = None

    def _read_messages(self) -> tuple[WireMessage, int | None] | None:
        """Return the next message; None after GOODBYE, and when this end is closed. Between transfers wait without a limit, within one at
        most for the deadline. Release a version that the owner does not take within ``UNREQUESTED_SECONDS`` after a newer one is
        available."""
        poller = select.poll()
        poller.register(self._channel, select.POLLIN)
        while True:
            patience = self._deadline if self._arriving is not None else None
            if self._forget_at is not None:
                patience = max(0.0, self._forget_at - time.monotonic())
            ready = poller.poll(None if patience is None else patience * 1000)
            if not ready and self._forget_at is not None:
                self._forget_at = None
                self._forget_unrequested()
                continue
            if not ready:
                raise WeightsError(
                    f"{self._trainer} sent nothing for {self._deadline:g} s in the middle of {self._arriving}; check whether it is "
                    "stopped or overloaded, or raise --weights-deadline"
                )
            try:
                heard = receive(self._channel)
            except BlockingIOError:
                continue
            if heard is None and not self._closed:
                place = f"is gone in the middle of {self._arriving}" if self._arriving is not None else "disconnected between two versions"
                raise WeightsError(f"{self._trainer} {place}")
            return None if heard is None or heard[0].kind is WireKind.GOODBYE else heard

    def _handle(self, message: WireMessage, descriptor: int | None) -> None:
        match message.kind:
            case WireKind.BEGIN:
                self._begin(message, descriptor)
            case WireKind.BUCKET:
                self._verify(message, self._arriving)
            case WireKind.NEWS:
                self._forget_at = time.monotonic() + min(
                    UNREQUESTED_SECONDS, self._deadline / 2
                )  # the publisher ends this process at the deadline

    def _begin(self, message: WireMessage, descriptor: int | None) -> None:
        number, size, at, length, digest, *in_use = message.numbers
        mapped = self._mapped(number, size, descriptor)
        self._maps = {**{one: memory for one, memory in self._maps.items() if one in in_use}, number: mapped}
        text = mapped[at : at + length].tobytes()
        if xxhash.xxh3_64_intdigest(text) != digest:
            raise WeightsError(f"the list of tensors of version {message.version} arrived damaged")
        self._arriving, self._forget_at = _Arriving(HostLayout.from_bytes(text), mapped), None

    def _mapped(self, number: int, size: int, descriptor: int | None) -> np.ndarray:
        try:
            if number in self._maps:
                return self._maps[number]
            if descriptor is None:  # the kernel silently drops one for which this process has no room
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return map_read_only(descriptor, size)
        except OSError as error:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise WeightsError(
                f"buffer {number} of {self._trainer} cannot be mapped: {error}; this process may have {limit} files open: if it needs "
                "more, raise the limit with `ulimit -n`"
            ) from error

    def _verify(self, message: WireMessage, arriving: _Arriving | None) -> None:
        index, digest, bucket_bytes = message.numbers
        if arriving is None or message.version != arriving.layout.version or index != arriving.verified:
            wanted = f"bucket {arriving.verified} of version {arriving.layout.version}" if arriving is not None else "none"
            raise WeightsError(f"bucket {index} of version {message.version} arrived, but {wanted} was expected")
        layout = arriving.layout
        arriving.buckets = arriving.buckets or layout.buckets(bucket_bytes) or [range(0)]
        places = arriving.buckets[index]
        sealed = arriving.memory[layout.size : layout.size + 8 * len(layout.offsets)].view(np.uint64)[places.start : places.stop]
        if xxhash.xxh3_64_intdigest(sealed.tobytes()) != digest:
            raise WeightsError(f"the checksums of bucket {index} of version {message.version} arrived damaged")
        layout.verify(arriving.memory, places, sealed)
        names = (layout.manifest.tensors[place].name for place in places)
        arriving.checksums.update(zip(names, sealed.tolist(), strict=True))
        arriving.verified += 1
        self._say(WireMessage(WireKind.VERIFIED, message.version, (index,)))
        if arriving.verified == len(arriving.buckets):
            self._arriving = None
            self._arrived(layout.snapshot(arriving.memory, arriving.checksums))

    def _drop_version(self, version: int) -> None:
        self._say(WireMessage(WireKind.RELEASE, version))

    def _interrupt(self) -> None:
        try:
            self._channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The other end closed first.

    def _free(self) -> None:
        self._channel.close()
