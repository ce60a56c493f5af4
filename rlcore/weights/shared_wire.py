"""What the two ends of the shared transport have in common: memory, and what they say to each other.

Messages are small and of fixed form, over a Unix socket; a buffer travels as a descriptor. The socket has an abstract name and a buffer
none at all, so no file is left in /dev/shm or elsewhere whatever is killed. Both ends check that the other runs under the same user.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import secrets
import socket
import struct
from collections import deque
from dataclasses import dataclass
from enum import IntEnum
from itertools import count

import numpy as np

from rlcore.contracts.errors import WeightsError

__all__ = ["Buffer", "Line", "SharedAddress", "WireKind", "WireMessage", "connect", "listen", "map_read_only", "peer_pid", "receive"]

_FORM = struct.Struct("<BqQQQQ")
_LONGEST = 1024
_CREDENTIALS = struct.Struct("3i")
_SEAL_FUTURE_WRITE = 0x10
# Linux 5.1: mappings made from now on are read-only. Python has no name for it before 3.13.


class WireKind(IntEnum):
    """What a message says; ``version`` is a policy version or, with ATTACH and DETACH, the number of a buffer."""

    ATTACH = 1
    """a: size in bytes; the descriptor of a buffer comes with it."""
    DETACH = 2
    BEGIN = 3
    """a: buffer; b, c: where the manifest lies and its length; d: its XXH3-64."""
    PROGRESS = 4
    """a: bytes that are in place."""
    END = 5
    """a: where the checksums lie; d: their XXH3-64. From here on the version is whole."""
    GOODBYE = 6
    """The publisher closes on purpose."""
    HELLO = 7
    """From a receiver; its name follows."""
    RELEASE = 8
    """From a receiver: it reads this version no more."""


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message; unused numbers are 0."""

    kind: WireKind
    version: int = 0
    a: int = 0
    b: int = 0
    c: int = 0
    d: int = 0
    text: str = ""

    def to_bytes(self) -> bytes:
        """At most 1024 bytes, so that one send carries it whole."""
        head = _FORM.pack(self.kind, self.version, self.a, self.b, self.c, self.d)
        return head + self.text.encode()[: _LONGEST - _FORM.size]

    @classmethod
    def from_bytes(cls, data: bytes) -> WireMessage:
        """WeightsError where it is none."""
        try:
            kind, *numbers = _FORM.unpack(data[: _FORM.size])
            version, a, b, c, d = numbers
            return cls(WireKind(kind), version, a, b, c, d, data[_FORM.size :].decode(errors="replace"))
        except (struct.error, ValueError) as error:
            raise WeightsError(f"the other end of a transfer of weights said something that is no message: {error}") from error


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """Where a publisher listens: its host and process, for messages, and the abstract name of its socket."""

    host: str
    pid: int
    name: str


class Line:
    """One end of a connection that never waits for the other end: what does not fit is kept, and sent when there is room.

    Not safe for threads. Of progress only the newest is kept, so what is kept is bounded by the number of transfers.
    """

    def __init__(self, channel: socket.socket) -> None:
        self.channel = channel
        self._kept: deque[tuple[WireMessage, int | None]] = deque()
        channel.setblocking(False)

    @property
    def full(self) -> bool:
        """True where messages are kept until there is room."""
        return bool(self._kept)

    def say(self, message: WireMessage, descriptor: int | None = None) -> None:
        """Send or keep; ``descriptor`` is duplicated while it is kept. The other end may be gone: then nothing happens."""
        self.flush()
        if self._kept:
            if message.kind is WireKind.PROGRESS and self._kept[-1][0].kind is WireKind.PROGRESS:
                self._kept.pop()
            self._keep(message, descriptor)
        elif not self._send(message, descriptor):
            self._keep(message, descriptor)

    def flush(self) -> None:
        """Send what is kept, as far as there is room."""
        while self._kept and self._send(*self._kept[0]):
            _, descriptor = self._kept.popleft()
            if descriptor is not None:
                os.close(descriptor)

    def close(self) -> None:
        """Forget what is kept and close the socket."""
        while self._kept:
            _, descriptor = self._kept.popleft()
            if descriptor is not None:
                os.close(descriptor)
        self.channel.close()

    def _keep(self, message: WireMessage, descriptor: int | None) -> None:
        self._kept.append((message, os.dup(descriptor) if descriptor is not None else None))

    def _send(self, message: WireMessage, descriptor: int | None) -> bool:
        try:
            if descriptor is None:
                self.channel.send(message.to_bytes())
            else:
                socket.send_fds(self.channel, [message.to_bytes()], [descriptor])
        except BlockingIOError:
            return False
        except OSError:
            return True  # It is gone; whoever reads this socket learns of it.
        return True


def receive(channel: socket.socket) -> tuple[WireMessage, int | None] | None:
    """The next message and the descriptor that came with it; None where the other end is gone. Waits as long as the socket's timeout
    says, then TimeoutError; BlockingIOError where it does not wait."""
    try:
        data, descriptors, _, _ = socket.recv_fds(channel, _LONGEST, 1, socket.MSG_CMSG_CLOEXEC)
    except ConnectionError:
        return None
    if not data:
        return None
    return WireMessage.from_bytes(data), descriptors[0] if descriptors else None


def peer_pid(channel: socket.socket) -> int:
    """The process at the other end; WeightsError where it belongs to another user."""
    pid, user, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.getuid():
        raise WeightsError(f"process {pid} of user {user} is at the other end of a transfer of weights of user {os.getuid()}")
    return int(pid)


def listen() -> tuple[socket.socket, str]:
    """A listening socket and its random abstract name, without the leading zero byte."""
    name = f"rlcore-weights-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{name}")
    listener.listen(1024)
    listener.setblocking(False)
    return listener, name


def connect(name: str) -> socket.socket:
    """A connection to whoever listens there; OSError where nobody does."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(f"\0{name}")
    except OSError:
        channel.close()
        raise
    return channel


# --- memory ------------------------------------------------------------------------------------------------------------


class Buffer:
    """One anonymous file, mapped for writing here: the owner writes, whoever gets the descriptor can only read."""

    _numbers = count(1)

    def __init__(self, size: int) -> None:
        self.number = next(self._numbers)
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create("rlcore-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # All of it now: where there is not enough memory this is an error here, not the end of whoever touches a page.
            os.posix_fallocate(self.descriptor, 0, self.size)
            self.flat: np.ndarray = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
            # It must not shrink under a reader, who would be killed by SIGBUS.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Let go of it; the memory is free when the last receiver has let go too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.flat = np.zeros(0, np.uint8)


def map_read_only(descriptor: int, size: int) -> np.ndarray:
    """uint8[size], read-only; the mapping lives as long as any view of it. Closes the descriptor."""
    try:
        return np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(descriptor)
