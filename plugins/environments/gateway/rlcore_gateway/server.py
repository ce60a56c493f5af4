"""The HTTP server of a gateway: uvicorn with httptools, on TCP and, if wanted, on a Unix socket."""

from __future__ import annotations

import asyncio
import socket
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httptools  # noqa: F401  # uvicorn's protocol needs it
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rlcore.api import RunError
from rlcore_gateway.gateway import Gateway
from rlcore_gateway.http_reply import CONNECTION

__all__ = ["Addresses", "GatewayServer"]

_KEEP_ALIVE_SECONDS = 24 * 3600
_LONGEST_SOCKET_PATH = 107


@dataclass(frozen=True, slots=True)
class Addresses:
    """``base_url`` for clients, which ends in /v1; ``unix_socket``: its path, None if there is none."""

    base_url: str
    port: int
    unix_socket: Path | None


class _ConnectionProtocol(HttpToolsProtocol):
    """Lets the gateway see whether the client of a request has hung up."""

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self.scope["extensions"] = {CONNECTION: self.transport.get_extra_info("socket")}


class _Server(uvicorn.Server):
    """A server that leaves signals to the process that it belongs to."""

    def capture_signals(self) -> Any:
        return nullcontext()


class GatewayServer:
    """Serves one gateway in the event loop that starts it."""

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._task: asyncio.Task[None] | None = None
        self._unix_socket: Path | None = None

    async def start(
        self,
        gateway: Gateway,
        host: str = "127.0.0.1",
        port: int = 0,
        unix_socket: Path | None = None,
        listening: socket.socket | None = None,
    ) -> Addresses:
        """Begin to serve and return the addresses. ``port`` 0: a free one. Raises RunError if an address cannot be opened.

        :param listening: a TCP socket that listens already, in place of ``host`` and ``port``.
        """
        sockets = [listening or _tcp(host, port)]
        if unix_socket is not None:
            try:
                sockets.append(_unix(unix_socket))
            except RunError:
                sockets[0].close()
                raise
            self._unix_socket = unix_socket
        config = uvicorn.Config(
            gateway.app,
            http=_ConnectionProtocol,
            ws="none",
            loop="none",
            lifespan="off",
            log_config=None,
            log_level="error",
            access_log=False,
            server_header=False,
            date_header=False,
            backlog=4096,
            timeout_keep_alive=_KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=2,
        )
        self._server = _Server(config)
        self._task = asyncio.ensure_future(self._server.serve(sockets=sockets))
        while not self._server.started and not self._task.done():
            await asyncio.sleep(0.005)
        if self._task.done():
            self._task.result()
            raise RunError(f"the gateway stopped while it began to serve on {host}:{port}")
        found = sockets[0].getsockname()[1]
        return Addresses(f"http://{host}:{found}/v1", found, unix_socket)

    async def stop(self) -> None:
        """Stop serving. Requests in progress have two seconds to end; close their episodes first."""
        if self._server is not None and self._task is not None:
            self._server.should_exit = True
            await self._task
        if self._unix_socket is not None:
            self._unix_socket.unlink(missing_ok=True)
        self._server = self._task = self._unix_socket = None


def _tcp(host: str, port: int) -> socket.socket:
    try:
        found = socket.create_server((host, port), backlog=4096)
    except OSError as error:
        raise RunError(f"the gateway cannot open {host}:{port}: {error.strerror}; choose another port, or 0 for a free one") from error
    found.setblocking(False)
    return found


def _unix(path: Path) -> socket.socket:
    if len(str(path).encode()) > _LONGEST_SOCKET_PATH:
        raise RunError(f"the path of the gateway's Unix socket is longer than {_LONGEST_SOCKET_PATH} bytes: {path}; choose a shorter one")
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.bind(str(path))
    except OSError as error:
        found.close()
        raise RunError(f"the gateway cannot open the Unix socket {path}: {error.strerror}; choose a new path") from error
    path.chmod(0o600)
    found.listen(4096)
    found.setblocking(False)
    return found
