"""The producer's end of the shared transport: follows the writer, hashing, and hands out views of the memory that it maps."""

from __future__ import annotations

import errno
import os
import resource
import select
import socket
from collections.abc import Callable

import numpy as np
import xxhash

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Snapshot
from rlcore.weights.background import BackgroundReceiver
from rlcore.weights.manifest import Follower, Manifest
from rlcore.weights.shared_wire import Line, SharedAddress, WireKind, WireMessage, connect, map_read_only, peer_pid, receive

__all__ = ["SharedReceiver"]


class SharedReceiver(BackgroundReceiver):
    """Receiver over anonymous shared memory. One thread listens, and hashes; whatever it found, ``newer_than`` says.

    Raises WeightsError where nobody listens at ``address``. ``deadline``: seconds that a transfer may stand still.
    """

    def __init__(self, name: str, address: SharedAddress, deadline: float, on_news: Callable[[], None]) -> None:
        super().__init__(name, on_news)
        self._deadline = deadline
        self._trainer = f"the trainer (process {address.pid} on {address.host})"
        self._maps: dict[int, np.ndarray] = {}
        self._follower: Follower | None = None
        self._flat = np.zeros(0, np.uint8)
        self._line = Line(self._connect(address.name))
        self._line.say(WireMessage(WireKind.HELLO, text=name))
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

    def newer_than(self, version: int) -> Snapshot | None:
        """See Receiver. Sends what is kept, too: the trainer may wait for the last release, after which there is no more to say."""
        with self._lock:
            self._line.flush()
        return super().newer_than(version)

    def _fetch(self) -> bool:
        heard = self._hear()
        if heard is not None:
            self._heed(*heard)
        return heard is not None

    def _finished(self) -> None:
        self._follower = None
        self._flat = np.zeros(0, np.uint8)
        self._maps.clear()
        self._interrupt()

    def _hear(self) -> tuple[WireMessage, int | None] | None:
        """The next message; None at the end. Between transfers it waits as long as it takes, in one no longer than the deadline."""
        channel = self._line.channel
        poller = select.poll()
        poller.register(channel, select.POLLIN)
        while True:
            if not poller.poll(None if self._follower is None else self._deadline * 1000):
                raise WeightsError(
                    f"{self._trainer} sent nothing for {self._deadline:g} s in the middle of version {self._follower_says()}; look whether "
                    "it is stopped or overloaded, or give it more time with --weights-deadline"
                )
            try:
                heard = receive(channel)
            except BlockingIOError:
                continue
            if heard is None and self._follower is not None and not self._closed:
                raise WeightsError(f"{self._trainer} is gone in the middle of version {self._follower_says()}")
            return None if heard is None or heard[0].kind is WireKind.GOODBYE else heard

    def _follower_says(self) -> str:
        return f"{self._follower.manifest.version}, at {self._follower.where()}" if self._follower is not None else "none"

    def _heed(self, message: WireMessage, descriptor: int | None) -> None:
        match message.kind:
            case WireKind.ATTACH:
                self._maps[message.version] = self._mapped(message, descriptor)
            case WireKind.DETACH:
                self._maps.pop(message.version, None)
            case WireKind.BEGIN:
                self._begin(message)
            case WireKind.PROGRESS if self._follower is not None:
                self._follower.follow(message.a)
            case WireKind.END if self._follower is not None:
                self._end(message, self._follower)

    def _mapped(self, message: WireMessage, descriptor: int | None) -> np.ndarray:
        try:
            if descriptor is None:  # the kernel drops one that this process cannot have, and says nothing
                raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
            return map_read_only(descriptor, message.a)
        except OSError as error:
            limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
            raise WeightsError(
                f"buffer {message.version} of {self._trainer} cannot be mapped: {error}; this process may have {limit} files open: where "
                "it needs more, raise the limit with `ulimit -n`"
            ) from error

    def _begin(self, message: WireMessage) -> None:
        self._flat = self._maps[message.a]
        text = self._flat[message.b : message.b + message.c].tobytes()
        if xxhash.xxh3_64_intdigest(text) != message.d:
            raise WeightsError(f"the list of tensors of snapshot {message.version} arrived damaged")
        self._follower = Follower(Manifest.from_bytes(text), self._flat)

    def _end(self, message: WireMessage, follower: Follower) -> None:
        checksums = self._flat[message.a : message.a + 8 * len(follower.manifest.sealed)].view(np.uint64)
        if xxhash.xxh3_64_intdigest(checksums.data) != message.d:
            raise WeightsError(f"the checksums of snapshot {message.version} arrived damaged")
        snapshot = follower.whole(checksums)
        self._follower = None
        self._arrived(snapshot)

    def _let_go(self, version: int) -> None:
        self._line.say(WireMessage(WireKind.RELEASE, version))

    def _interrupt(self) -> None:
        try:
            self._line.channel.shutdown(socket.SHUT_RDWR)
        except OSError:
            return  # The other end was faster.

    def _free(self) -> None:
        self._line.close()
