"""What the tests of sessions share: an HTTP server on a Unix socket, and sessions that run Python programs."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import uvicorn
from kit_sandbox import FUSE, opened
from rlcore_plugin_sandbox import bubblewrap, local_sandbox
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, StreamingResponse
from starlette.routing import Route

from rlcore.api.sandbox import Limits, ProgramResult, Sandbox, Session, SessionJob

PYTHON = sys.executable
"""The interpreter of this environment, with httpx."""
HERE = Path(sys.prefix)
LIMITS = Limits(
    wall_seconds=FUSE, cpu_seconds=FUSE, memory_bytes=1 << 30, disk_bytes=1 << 24, files=4096, processes=128, address_bytes=1 << 40
)


class Gateway:
    """An HTTP server on ``path``. ``go`` lets a streamed answer go on; ``left`` is set when a client has hung up."""

    def __init__(self, path: Path) -> None:
        self.path, self.go, self.left = path, threading.Event(), threading.Event()
        routes = [
            Route("/echo", self._echo, methods=["POST"]),
            Route("/stream", self._stream),
            Route("/many", self._many),
            Route("/wait", self._wait),
        ]
        self._together, self._here = asyncio.Event(), 0
        self._server = uvicorn.Server(uvicorn.Config(Starlette(routes=routes), uds=str(path), log_level="error"))
        self._thread = threading.Thread(target=self._server.run, daemon=True)

    def __enter__(self) -> Gateway:
        self._thread.start()
        while not self._server.started:
            assert self._thread.is_alive()
            threading.Event().wait(0.01)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    async def _echo(self, request: Request) -> PlainTextResponse:
        return PlainTextResponse(await request.body())

    async def _stream(self, _: Request) -> StreamingResponse:
        async def pieces() -> AsyncIterator[bytes]:
            yield b"first\n"
            while not self.go.is_set():
                await asyncio.sleep(0.01)
            yield b"second\n"

        return StreamingResponse(pieces())

    async def _many(self, request: Request) -> PlainTextResponse:
        """Answer when 50 requests are open at once."""
        self._here += 1
        if self._here == 50:
            self._together.set()
        await self._together.wait()
        return PlainTextResponse(request.query_params["n"])

    async def _wait(self, request: Request) -> PlainTextResponse:
        while not await request.is_disconnected():
            await asyncio.sleep(0.01)
        self.left.set()
        return PlainTextResponse("")


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    with opened("namespaces") as sandbox:
        yield sandbox


@pytest.fixture
def gateway() -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="rlcore-test-gateway-") as folder, Gateway(Path(folder, "gateway.sock")) as gateway:
        yield gateway


def job(source: str, **given) -> SessionJob:
    """A session that runs a Python program."""
    return SessionJob(**{"argv": (PYTHON, "-c", source), "readable": (HERE,), "limits": LIMITS} | given)


def ran(sandbox: Sandbox, source: str, **given) -> tuple[ProgramResult, str]:
    """Run a Python program as a session to its end; return the result and its output."""
    with sandbox.session(job(source, **given)) as session:
        output = session.stdout.read().decode()
        return session.wait(FUSE), output


def line(session: Session) -> str:
    """The next line that the session prints."""
    return session.stdout.readline().decode().rstrip("\n")


def listening(path: Path) -> contextlib.closing[socket.socket]:
    """A Unix socket on which a test itself plays the server."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(path))
    server.listen(64)
    return contextlib.closing(server)


@pytest.fixture(scope="module", params=["another user", "the same user"])
def walled(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    """A sandbox whose sessions have another user than their supervisor, as under root, or the same, as under everybody else."""
    if request.param == "another user" and os.getuid() != 0:
        pytest.skip("only root becomes somebody else")
    same = [bubblewrap.JailUser(("--unshare-user",), os.getuid(), os.getgid())]
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "the same user":
            patch.setattr(local_sandbox.bubblewrap, "jail_users", lambda: same)
        with opened("namespaces") as sandbox:
            yield sandbox
