"""The common code of the two ends of the shared transport: the memory, and the messages.

A message is a short JSON list, sent over a Unix socket; a buffer is sent as a descriptor. The socket has an abstract name and a buffer has
no name, so no file remains in /dev/shm or elsewhere after any crash. Both ends check that the other one runs under the same user.
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
# Linux 5.1: new mappings are read-only. Python has a name for it only from 3.13 on.


class WireKind(StrEnum):
    """The meaning of a message, and its numbers after the version."""

    BEGIN = "begin"
    """The buffer, its size, the offset of the layout, its length, its XXH3-64; then the buffers in use. The descriptor of the buffer comes
    with the message, unless the receiver has it. The tensors are in place, their checksums are not yet."""
    BUCKET = "bucket"
    """The index, and the XXH3-64 of the checksums of its tensors, which from now on follow the tensors. The last bucket completes the
    version."""
    NEWS = "news"
    """A newer version is available than the one that the receiver holds. It is offered when the receiver holds none."""
    GOODBYE = "goodbye"
    """The publisher closes on purpose."""
    HELLO = "hello"
    """From a receiver; the text is its name."""
    RELEASE = "release"
    """From a receiver, which does not read this version any more."""
    VERIFIED = "verified"
    """From a receiver, which has verified the bucket of this index, and so is alive."""


@dataclass(frozen=True, slots=True)
class WireMessage:
    """One message."""

    kind: WireKind
    version: int = 0
    numbers: tuple[int, ...] = ()
    text: str = ""

    def to_bytes(self) -> bytes:
        """Encode the message. It is short enough for a single send."""
        return json.dumps([self.kind, self.version, self.numbers, self.text[:1000]], ensure_ascii=False).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> WireMessage:
        """Decode a message. Raise WeightsError for any other data."""
        try:
            kind, version, numbers, text = json.loads(data)
            return cls(WireKind(kind), int(version), tuple(map(int, numbers)), str(text))
        except (ValueError, TypeError) as error:
            raise WeightsError(f"the other end of a transfer of weights sent something that is not a message: {error}") from error


@dataclass(frozen=True, slots=True)
class SharedAddress:
    """The address of a publisher: its host and process, for messages, and the abstract name of its socket."""

    host: str
    pid: int
    name: str


def receive(channel: socket.socket) -> tuple[WireMessage, int | None] | None:
    """Return the next message and its descriptor; None if the other end is gone. Raise BlockingIOError if there is no message."""
    try:
        data, descriptors = _read(channel)
    except ConnectionResetError:  # It closed with messages unread. Linux reports that before it returns the messages of the other end.
        data, descriptors = _read(channel)
    return (WireMessage.from_bytes(data), descriptors[0] if descriptors else None) if data else None


def _read(channel: socket.socket) -> tuple[bytes, list[int]]:
    # Not socket.recv_fds, which ignores its flags: it would wait, and child processes would inherit the descriptors.
    data, carried, _, _ = channel.recvmsg(_LONGEST, socket.CMSG_LEN(array("i").itemsize), socket.MSG_CMSG_CLOEXEC | socket.MSG_DONTWAIT)
    descriptors = array("i")
    for level, kind, numbers in carried:
        if (level, kind) == (socket.SOL_SOCKET, socket.SCM_RIGHTS):
            descriptors.frombytes(numbers[: len(numbers) - len(numbers) % descriptors.itemsize])
    return data, list(descriptors)


def peer_pid(channel: socket.socket) -> int:
    """Return the process at the other end. Raise WeightsError if it belongs to another user, or is not visible from here."""
    pid, user, _ = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    if user != os.getuid():
        raise WeightsError(f"process {pid} of user {user} is at the other end of a transfer of weights of user {os.getuid()}")
    if pid <= 0:
        raise WeightsError(
            "the other end of a transfer of weights is in a container with its own process ids, so it could not be killed if it stopped; "
            "type --transport object_store"
        )
    return int(pid)


def listen() -> tuple[socket.socket, str]:
    """Return a listening socket and its random abstract name, without the leading zero byte."""
    name = f"rlcore-weights-{secrets.token_hex(16)}"
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(f"\0{name}")
    listener.listen(1024)
    listener.setblocking(False)
    return listener, name


def connect(name: str) -> socket.socket:
    """Connect to a listening publisher. Raise OSError if none listens."""
    channel = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        channel.connect(f"\0{name}")
    except OSError:
        channel.close()
        raise
    return channel


# --- memory ------------------------------------------------------------------------------------------------------------


class SharedMemory:
    """An anonymous file, mapped for writing by its owner. Processes that receive its descriptor can only read."""

    _numbers = count(1)
    abandoned = False

    def __init__(self, size: int) -> None:
        self.number = next(self._numbers)
        self.size = -(-max(size, 1) // mmap.PAGESIZE) * mmap.PAGESIZE
        self.descriptor = os.memfd_create("rlcore-weights", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            # Allocate all pages now: if memory is short, this raises an error, while touching a page later would kill the process.
            os.posix_fallocate(self.descriptor, 0, self.size)
            self.flat: np.ndarray = np.frombuffer(mmap.mmap(self.descriptor, self.size), np.uint8)
            # It must not shrink under a reader, which would be killed by SIGBUS.
            fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
            with contextlib.suppress(OSError):
                fcntl.fcntl(self.descriptor, fcntl.F_ADD_SEALS, _SEAL_FUTURE_WRITE)
        except OSError:
            os.close(self.descriptor)
            raise

    def close(self) -> None:
        """Release the memory. It is free when the last receiver has released it too."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
            self.flat = np.zeros(0, np.uint8)


def map_read_only(descriptor: int, size: int) -> np.ndarray:
    """Map a buffer: uint8[size], read-only. The mapping exists as long as any view of it. Close the descriptor."""
    try:
        return np.frombuffer(mmap.mmap(descriptor, size, prot=mmap.PROT_READ), np.uint8)
    finally:
        os.close(descriptor)
