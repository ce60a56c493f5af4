"""A worker of an engine in a group of ``fake_collective``, and the words that it and the trainer exchange around the bytes."""

from __future__ import annotations

import socket
import struct
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlcore.contracts.errors import GroupBrokenError, WeightsError
from rlcore.contracts.snapshots import TensorInfo, compare_checksums, tensor_hasher

__all__ = ["HELLO", "TAKEN", "WHOLE", "FakeGroupRank", "exactly"]

WHOLE, TAKEN = b"+", b"."
"""The trainer: all ranks are here. A rank: it has taken a bucket."""
HELLO = struct.Struct("!16sI")
"""A rank's first word: the key of the group, and its number there."""


def exactly(peer: socket.socket, size: int) -> bytes:
    """Return so many bytes; ConnectionError if the peer has closed."""
    memory, at = bytearray(size), 0
    while at < size:
        count = peer.recv_into(memoryview(memory)[at:])
        if not count:
            raise ConnectionResetError("the other end hung up")
        at += count
    return bytes(memory)


class FakeGroupRank:
    """A worker's side of one epoch. GroupBrokenError if the group breaks; WeightsError if it stalls, and for damage."""

    def __init__(self, info: Mapping[str, Any], rank: int) -> None:
        """``rank``: of this worker among those of its engine."""
        self._deadline = 2 * info["deadline"]  # the trainer finds out first
        self._peer = socket.socket()
        try:
            self._peer.settimeout(self._deadline)
            self._peer.connect(info["address"])
            self._peer.sendall(HELLO.pack(info["key"], info["first"] + rank))
        except OSError as error:
            raise GroupBrokenError(f"the group of the weights could not be joined: {error}") from error
        self._read(1)

    def take(self, version: int, tensors: Sequence[tuple[str, str, tuple[int, ...], int]]) -> dict[str, np.ndarray]:
        """Return the tensors of a bucket (name, dtype, shape, checksum), each verified."""
        taken, meant = {}, {name: checksum for name, _, _, checksum in tensors}
        for name, dtype, shape, _ in tensors:
            info = TensorInfo(name=name, dtype=dtype, shape=tuple(shape))
            memory = self._read(info.nbytes)
            hasher = tensor_hasher(dtype, info.shape)
            hasher.update(memory)
            compare_checksums(version, info, hasher.intdigest(), meant)
            taken[name] = np.frombuffer(memory, info.carrier).reshape(info.shape)
        try:
            self._peer.sendall(TAKEN)
        except OSError as error:
            raise GroupBrokenError(f"the group of the weights broke: {error}") from error
        return taken

    def close(self) -> None:
        """Leave: the group ends with it."""
        self._peer.close()

    def __del__(self) -> None:
        self.close()

    def _read(self, size: int) -> bytes:
        try:
            return exactly(self._peer, size)
        except TimeoutError as error:
            raise WeightsError(f"the trainer sent no weights for {self._deadline:g} s; look whether it is stopped or overloaded") from error
        except OSError as error:
            raise GroupBrokenError(f"the group of the weights broke: {error}") from error
