"""A Unix socket for a session whose agent runs inside: it passes connections on to the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import urlsplit

__all__ = ["relayed"]


@asynccontextmanager
async def relayed(path: Path, base_url: str) -> AsyncIterator[None]:
    """Listen on a Unix socket, and pass each connection on to the server of an address."""
    place = urlsplit(base_url)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            there, to = await asyncio.open_connection(place.hostname, place.port or 80)
            copies = [asyncio.create_task(_copy(reader, to)), asyncio.create_task(_copy(there, writer))]
            await asyncio.wait(copies)
            for one in (to, writer):
                one.close()

    server = await asyncio.start_unix_server(pass_on, path)
    try:
        yield
    finally:
        server.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.write_eof()
