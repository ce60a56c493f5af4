"""Pickled messages between a producer and its gateway process, over a socket. Each end is used in one event loop."""

from __future__ import annotations

import asyncio
import pickle
import socket
import struct
from typing import Any

__all__ = ["Channel"]

_LENGTH = struct.Struct("<Q")


class Channel:
    """One end of the socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def of(cls, end: socket.socket) -> Channel:
        """Return the channel of a connected socket, which it owns from now on."""
        return cls(*await asyncio.open_connection(sock=end))

    def send(self, message: Any) -> None:
        """Send a message without waiting. If the other end is gone, nothing happens; ``receive`` reports it."""
        packed = pickle.dumps(message, protocol=5)
        self._writer.write(_LENGTH.pack(len(packed)) + packed)

    async def receive(self) -> Any:
        """Return the next message. Raises EOFError if the other end is gone."""
        try:
            (length,) = _LENGTH.unpack(await self._reader.readexactly(_LENGTH.size))
            return pickle.loads(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, OSError) as error:
            raise EOFError(str(error)) from error

    async def flush(self) -> None:
        """Wait until what was sent has left this process."""
        try:
            await self._writer.drain()
        except OSError:
            return

    def close(self) -> None:
        """Close the socket."""
        self._writer.close()
