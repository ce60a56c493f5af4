"""What the two ends of the shared transport have in common: memory, and what they say to each other.

Messages are small lists of JSON over a Unix socket; a buffer travels as a descriptor. The socket has an abstract name and a buffer none at
all, so no file is left in /dev/shm or elsewhere whatever is killed. Both ends check that the other runs under the same user.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import mmap
import os
import secrets
import socket
import struct
from array import array
from dataclasses import dataclass
from enum import StrEnum
from itertools import count

import numpy as np

from rlcore.api.weights import WeightsError

__all__ = ["SharedAddress", "SharedMemory", "WireKind", "WireMessage", "connect", "listen", "map_read_only", "peer_pid", "receive"]

_LONGEST = 4096
_CREDENTIALS = struct.Struct("3i")
_SEAL_FUTURE_WRITE = 0x10
# Linux 5.1: mappings made from now on are read-only. Python has no name for it before 3.13.


class WireKind(StrEnum):
    """What a message says, and its numbers after the version."""

    BEGIN = "begin"
    """buffer, size of the buffer, where the layout lies, its length, its XXH3-64; then the buffers that are in use. The descriptor of the
    buffer comes with it, unless the receiver has it. The tensors are in place, their checksums are not yet."""
    BUCKET = "bucket"
    """index, XXH3-64 of the checksums of its tensors, which lie behind the tensors from now on. The last one makes the version whole."""
    NEWS = "news"
    """A newer version is there than the one that the receiver holds: it is told of that as soon as it holds none."""
    GOODBYE = "goodbye"
    """The publisher closes on purpose."""
    HELLO = "hello"
    """From a receiver; its name is the text."""
    RELEASE = "release"
    """From a receiver: it reads this version no more."""
    VERIFIED = "verified"
    """From a receiver: it has verified the bucket of this index, and is alive."""


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message."""

    kind: WireKind
    version: int = 0
    numbers: tuple[int, ...] = ()
    text: str = ""

    def to_bytes(self) -> bytes:
        """So short that one send carries it whole."""
        return json.dumps([self.kind, self.version, self.numbers, self.text[:1000]], ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WireMessage:
        """WeightsError for anything else."""
        try:
            kind, version, numbers, text = json.loads(data)
            return cls(WireKind(kind), int(version), tuple(map(int, numbers)), str(text))
        except (ValueError, TypeError) as error:
            raise WeightsError(f"the other end of a transfer of weights said something that is no message: {error}") from error


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """Where a publisher listens: its host and process, for messages, and the abstract name of its socket."""

    host: str
    pid: int
    name: str


def receive(channel: socket.socket) -> tuple[WireMessage, int | None] | None:
    """The next message and the descriptor that came with it; None if the other end is gone. BlockingIOError if nothing is there."""
    try:
        data, descriptors = _read(channel)
    except ConnectionResetError:  # It closed with messages unread. Linux says so before it hands out what the other end had said.
        data, descriptors = _read(channel)
    return (WireMessage.from_bytes(data), descriptors[0] if descriptors else None) if data else None


def _read(channel: socket.socket) -> tuple[bytes, list[int]]:
    # Not socket.recv_fds, which forgets its flags: it waits, and programs that this process starts inherit what came.
    data, carried, _, _ = channel.recvmsg(_LONGEST, socket.CMSG_LEN(array("i").itemsize), socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    descriptors = array("i")
    for level, kind, numbers in carried:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(numbers[: len(numbers) - len(numbers) % descriptors.itemsize])
    return data, list(descriptors)


def peer_pid(channel: socket.socket) -> int:
    """The process at the other end; WeightsError if it belongs to another user, or cannot be seen from here."""
    pid, user, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.getuid():
        raise WeightsError(f"process {pid} of user {user} is at the other end of a transfer of weights of user {os.getuid()}")
    if pid <= 0:
        raise WeightsError(
            "the other end of a transfer of weights is in a container with processes of its own, and could not be ended if it stopped; "
            "type --transport object_store"
        )
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
    """A connection to whoever listens there; OSError if nobody does."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(f"\0{name}")
    except OSError:
        channel.close()
        raise
    return channel


# --- memory ------------------------------------------------------------------------------------------------------------


class SharedMemory:
    """One anonymous file, mapped for writing here: the owner writes, whoever gets the descriptor can only read."""

    _numbers = count(1)
    abandoned = False

    def __init__(self, size: int) -> None:
        self.number = next(self._numbers)
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create("rlcore-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # All of it now: if there is not enough memory this is an error here, not the end of whoever touches a page.
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
