"""Ranks of the fake trainer: all processes exchange arrays through rank 0, in numpy and sockets alone.

Slow and simple on purpose; a real backend uses its own library. No pickle goes over the wire.
"""

from __future__ import annotations

import io
import socket
import time
from contextlib import suppress
from multiprocessing.connection import Connection

import numpy as np

from rlcore.contracts.errors import ConfigError, RunError

__all__ = ["StarRanks"]

_ARRAY, _ERROR = b"a", b"!"


class StarRanks:
    """``gather`` between ``size`` processes that meet at ``rendezvous`` (``tcp://host:port``, where rank 0 listens).

    A rank that is gone, or silent for ``deadline`` seconds, is a RunError that names it, on all the others. Rank 0 finds out first: the
    others give it twice the deadline.
    """

    def __init__(self, rank: int, size: int, rendezvous: str, deadline: float = 60.0) -> None:
        self.rank, self.size, self.deadline = rank, size, deadline
        self._peers: dict[int, Connection] = {}
        if size == 1:
            return
        host, _, port = rendezvous.removeprefix("tcp://").rpartition(":")
        if not host or not port.isdigit():
            raise ConfigError(f"rendezvous {rendezvous!r} of {size} trainer ranks is not an address; it must be tcp://host:port")
        if rank == 0:
            self._listen(host, int(port))
        else:
            self._peers[0] = self._connect(host, int(port))

    def gather(self, values: np.ndarray) -> list[np.ndarray]:
        """Return the arrays of all ranks, by rank; shapes may differ."""
        if self.size == 1:
            return [values]
        own = _packed(values)
        if self.rank != 0:
            self._send(0, own)
            return [_unpacked(self._receive(0, time.monotonic() + 2 * self.deadline)) for _ in range(self.size)]
        until = time.monotonic() + self.deadline
        try:
            messages = [own, *(self._receive(rank, until) for rank in range(1, self.size))]
        except RunError as error:
            for rank in self._peers:
                with suppress(RunError):
                    self._send(rank, _ERROR + str(error).encode())
            raise
        for rank in self._peers:
            for message in messages:
                self._send(rank, message)
        return [_unpacked(message) for message in messages]

    def close(self) -> None:
        """Hang up; the others learn of it at their next ``gather``."""
        for peer in self._peers.values():
            peer.close()
        self._peers.clear()

    def _listen(self, host: str, port: int) -> None:
        until = time.monotonic() + self.deadline
        with socket.create_server((host, port)) as server:
            while len(self._peers) < self.size - 1:
                server.settimeout(max(until - time.monotonic(), 0.001))
                try:
                    arrived = _connection(server.accept()[0])
                except TimeoutError:
                    absent = ", ".join(str(rank) for rank in range(1, self.size) if rank not in self._peers)
                    raise RunError(f"trainer rank 0 waited {self.deadline:g} s at {host}:{port} for rank {absent}") from None
                self._peers[int(arrived.recv_bytes())] = arrived

    def _connect(self, host: str, port: int) -> Connection:
        until = time.monotonic() + self.deadline
        while True:
            try:
                peer = _connection(socket.create_connection((host, port), timeout=self.deadline))
                break
            except OSError as error:
                if time.monotonic() > until:
                    raise RunError(f"trainer rank {self.rank} waited {self.deadline:g} s at {host}:{port} for rank 0: {error}") from error
                time.sleep(0.02)
        peer.send_bytes(str(self.rank).encode())
        return peer

    def _send(self, rank: int, message: bytes) -> None:
        try:
            self._peers[rank].send_bytes(message)
        except (OSError, KeyError) as error:
            raise RunError(f"trainer rank {self.rank} lost rank {rank}: {error or type(error).__name__}") from error

    def _receive(self, rank: int, until: float) -> bytes:
        try:
            if not self._peers[rank].poll(max(until - time.monotonic(), 0.0)):
                raise RunError(f"trainer rank {self.rank} waited {self.deadline:g} s for rank {rank}")
            message = self._peers[rank].recv_bytes()
        except (OSError, EOFError, KeyError) as error:
            raise RunError(f"trainer rank {self.rank} lost rank {rank}: its process ended or hung up") from error
        if message[:1] == _ERROR:
            raise RunError(message[1:].decode())
        return message


def _connection(arrived: socket.socket) -> Connection:
    arrived.settimeout(None)
    arrived.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # else a second small message waits 40 ms for the first one's receipt
    return Connection(arrived.detach())


def _packed(values: np.ndarray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return _ARRAY + buffer.getvalue()


def _unpacked(message: bytes) -> np.ndarray:
    return np.asarray(np.load(io.BytesIO(message[1:]), allow_pickle=False))
