"""The relay of a session: it accepts TCP connections inside, and copies both directions of each to the one Unix socket outside."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import threading

__all__ = ["start"]

_CHUNK = 1 << 16
_PAUSE = 0.02  # seconds before the next try if descriptors are short, or if the queue of the Unix socket is full


def start(listener: socket.socket, address: str) -> None:
    """Relay in a thread, until this process ends. An error of the relay's own must not pass for the command's: it ends this process."""

    def serve() -> None:
        try:
            asyncio.run(_relay(listener, address))
        except BaseException:
            sys.excepthook(*sys.exc_info())
            os._exit(1)

    threading.Thread(target=serve, daemon=True).start()


async def _relay(listener: socket.socket, address: str) -> None:
    """Serve ``listener``, which must not block, until this task is cancelled. No client and no server can end it."""
    loop, connections = asyncio.get_running_loop(), set[asyncio.Task[None]]()
    while True:
        try:
            client, _ = await loop.sock_accept(listener)
        except OSError:  # no descriptor is free, or the client is gone
            await asyncio.sleep(_PAUSE)
            continue
        connection = loop.create_task(_connect(client, address))
        connections.add(connection)
        connection.add_done_callback(connections.discard)


async def _connect(client: socket.socket, address: str) -> None:
    """Copy until both directions have ended, or until one end is broken. If the server cannot be reached, close the connection."""
    with client, contextlib.suppress(OSError):
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with socket.socket(socket.AF_UNIX) as server:
            server.setblocking(False)
            while True:
                try:
                    server.connect(address)
                    break
                except BlockingIOError:  # asyncio's sock_connect would take this for a connection that is being made
                    await asyncio.sleep(_PAUSE)
            try:
                async with asyncio.TaskGroup() as directions:
                    directions.create_task(_copy(client, server))
                    directions.create_task(_copy(server, client))
            except* OSError:
                pass


async def _copy(source: socket.socket, sink: socket.socket) -> None:
    """Copy each piece when it arrives, and the end of the data. :raises OSError: the source is broken, so nobody needs the other
    direction."""
    loop = asyncio.get_running_loop()
    while data := await loop.sock_recv(source, _CHUNK):
        try:
            await loop.sock_sendall(sink, data)
        except OSError:
            return  # The sink reads no more. What it has sent can still be on its way, so the other direction goes on.
    with contextlib.suppress(OSError):
        sink.shutdown(socket.SHUT_WR)
