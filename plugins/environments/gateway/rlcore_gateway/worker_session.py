"""A process that plays episodes inside a session of a sandbox. It reaches the gateway and nothing else."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path

from rlcore.api.sandbox import ProgramResult, Sandbox, SandboxError, Session
from rlcore_gateway.worker_lines import LONGEST_LINE
from rlcore_gateway.worker_process import EpisodeWorker, WorkerCommand, ending, last_line

__all__ = ["BASE_URL", "SessionWorker"]

_PORT = 9471  # not one that programs like to listen on themselves, as 8000
BASE_URL = f"http://127.0.0.1:{_PORT}/v1"
"""The address of the gateway inside each session."""
_TIME_LIMITS = ("wall", "cpu")


class _AnswerPipe(asyncio.StreamReaderProtocol):
    """``closed`` is set when the pipe is closed."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        super().__init__(reader)
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.closed.set()


class _LinePipe(asyncio.BaseProtocol):
    """``closed`` is set when the pipe is closed."""

    def __init__(self) -> None:
        self.closed = asyncio.Event()

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set()


class SessionWorker(EpisodeWorker):
    """A session, and the pipes to it."""

    def __init__(self, command: WorkerCommand, session: Session) -> None:
        super().__init__(command)
        self.exited, self._session = asyncio.Event(), session
        self._result: ProgramResult | None = None
        self._failure = ""

    @classmethod
    async def start(cls, command: WorkerCommand, sandbox: Sandbox, reach: Path) -> EpisodeWorker:
        """Start the session, which reaches the Unix socket ``reach``. Raises SandboxError if the sandbox cannot start it."""
        starting = asyncio.create_task(cls._started(command, sandbox, reach))
        try:
            return await asyncio.shield(starting)
        except asyncio.CancelledError:  # nobody would end it
            await (await starting).kill()
            raise

    @classmethod
    async def _started(cls, command: WorkerCommand, sandbox: Sandbox, reach: Path) -> SessionWorker:
        assert command.session is not None
        session = await asyncio.to_thread(sandbox.session, replace(command.session, reach=reach, port=_PORT))
        worker = cls(command, session)
        await worker._connect()
        return worker

    async def _connect(self) -> None:
        loop, self._output = asyncio.get_running_loop(), asyncio.StreamReader(limit=LONGEST_LINE)
        self._reading, output = await loop.connect_read_pipe(lambda: _AnswerPipe(self._output), self._session.stdout)
        self._input, input_ = await loop.connect_write_pipe(_LinePipe, self._session.stdin)
        self._pipes_closed = (output.closed, input_.closed)
        loop.add_reader(self._session.fileno(), self._end)

    def _end(self) -> None:
        asyncio.get_running_loop().remove_reader(self._session.fileno())
        try:
            self._result = self._session.poll()
        except SandboxError as error:
            self._failure = str(error)
        self.exited.set()

    @property
    def killed(self) -> bool:
        result = self._result
        return bool(self._failure) or (result is not None and (result.signal is not None or result.limit in _TIME_LIMITS))

    @property
    def left(self) -> bool:
        return self._result is not None and self._result.exit_code == 0 and not self.fault

    async def kill(self) -> None:
        await asyncio.to_thread(self._session.kill)
        await self.exited.wait()
        self._reading.close()
        if not self._input.is_closing():
            self._input.abort()
        for closed in self._pipes_closed:  # before that, the session must not close them
            await closed.wait()
        await asyncio.to_thread(self._session.close)

    def death(self) -> str:
        result = self._result
        if result is None:
            return f"was lost with its sandbox: {self._failure}"
        errors = result.stderr.decode(errors="replace").splitlines()
        if result.limit is not None:
            return f"reached the limit {result.limit} of its session{last_line(errors)}"
        return ending(-result.signal if result.signal else result.exit_code or 0, errors)
