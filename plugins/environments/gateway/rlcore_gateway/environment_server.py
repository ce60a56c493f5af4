"""The server of an environment: one that runs already, or one that the environment's process starts.

This module runs in the Python of the environment, and imports nothing that must be installed.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE, STDOUT, Process
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NoReturn

__all__ = ["EnvironmentServer", "free_port"]

_EVERY, _DYING = 0.05, 2.0


def free_port() -> int:
    """Return a port of this machine that nothing uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class EnvironmentServer:
    """Knows the address, and starts the server when that is first needed. The gateway ends it with this process.

    If a server of this process dies, this process ends by a signal, as its server did: its episodes count as lost, and are played once more
    in another process with another server. A server that cannot start ends this process with exit code 1; three in a row end the run.

    :param address: of a server that somebody else runs; "" to start one.
    :param command: returns the words of the command for a port.
    :param env: all environment variables of the server.
    :param start_seconds: the time in which it must answer a request after its start, whatever it answers.
    """

    def __init__(
        self,
        address: str,
        command: Callable[[int], Sequence[str]],
        *,
        folder: Path | None,
        env: Mapping[str, str],
        start_seconds: float,
    ) -> None:
        self.own = not address
        self._command, self._folder, self._env, self._start_seconds = command, folder, dict(env), start_seconds
        self._starting = asyncio.Lock()
        self._process: Process | None = None
        self._started = False
        self._address = address

    async def address(self) -> str:
        """Return the address. This starts the server if this process has to."""
        async with self._starting:
            if self.own and self._process is None:
                await self._start()
        return self._address

    async def replace(self) -> None:
        """Kill the server, which does not answer; the next episode starts another one. A server of others is left alone."""
        process, self._process = self._process, None
        if process is not None and process.returncode is None:
            process.kill()
            await process.wait()

    async def died(self) -> None:
        """Wait a moment for the end of a server that closed a connection, which ends this process."""
        if self._process is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(asyncio.shield(self._watching), _DYING)

    async def _start(self) -> None:
        port = free_port()
        words = self._command(port)
        try:
            self._process = process = await asyncio.create_subprocess_exec(
                *words, stdin=DEVNULL, stdout=PIPE, stderr=STDOUT, env=self._env, cwd=self._folder
            )
        except OSError as error:
            _end(f"the server cannot be started: {error.filename or words[0]}: {error.strerror}")
        self._address, self._started = f"http://127.0.0.1:{port}", False
        self._last = ""
        self._watching = asyncio.create_task(self._watch(process))
        try:
            await asyncio.wait_for(_answers(port), self._start_seconds)
        except TimeoutError:
            _end(f"the server did not answer within {self._start_seconds:g} s of its start (start_seconds)")
        self._started = True

    async def _pass_on(self, process: Process) -> None:
        """Print what the server prints, and keep its last line."""
        assert process.stdout is not None
        while data := await process.stdout.read(1 << 16):
            sys.stderr.buffer.write(data)
            sys.stderr.flush()
            lines = data.decode(errors="replace").strip().splitlines()
            self._last = lines[-1].strip() if lines else self._last

    async def _watch(self, process: Process) -> None:
        printing = asyncio.create_task(self._pass_on(process))
        code = await process.wait()
        if process is self._process:
            await asyncio.wait({printing}, timeout=_DYING)  # a process below the server may keep it open
            how = f"was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"
            if not self._started:
                _end(f"the server {how} before it answered{f': {self._last[:300]}' if self._last else ''}")
            print(f"the server {how}", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)


async def _answers(port: int) -> None:
    """Wait until a server answers a request."""
    while True:
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            with contextlib.closing(writer):
                writer.write(b"GET / HTTP/1.0\r\n\r\n")
                if await reader.read(1):
                    return
        except OSError:
            pass
        await asyncio.sleep(_EVERY)


def _end(reason: str) -> NoReturn:
    """End this process. If three in a row end so, the run ends with this reason."""
    print(reason, file=sys.stderr, flush=True)
    os._exit(1)
