"""One process that plays episodes, as the pool sees it, and how a plain one is started."""

from __future__ import annotations

import asyncio
import os
import signal
from abc import ABC, abstractmethod
from asyncio.subprocess import PIPE, Process, SubprocessStreamProtocol
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from rlcore.api.sandbox import SessionJob
from rlcore_gateway.process_tree import MARK, kill_tree, new_mark
from rlcore_gateway.worker_lines import LONGEST_LINE, EpisodeEnd, as_line

__all__ = ["EpisodeWorker", "PlainWorker", "WorkerCommand", "ending", "last_line"]

_LINES = 20
_LONGEST_ERROR = 4096
"""The kept end of a line on standard error, in characters: a progress bar may have no line breaks."""
_LOCAL = "127.0.0.1,localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerCommand:
    """How to start a process, and how many episodes it may play at the same time.

    ``env``: variables in addition to those of this process. An empty value removes a variable.
    ``first_line``: what it receives before its first episode.
    ``title``: its name in messages, "" for the command.
    ``session``: the same process inside a sandbox, None without one. ``argv``, ``env`` and ``cwd`` have no effect then.
    """

    argv: tuple[str, ...]
    title: str = ""
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str | None = None
    first_line: bytes = b""
    episodes: int = 1
    session: SessionJob | None = None

    def variables(self, mark: str) -> dict[str, str]:
        """Return its environment variables. A proxy is never asked for the gateway, which is on this machine."""
        local = {name: ",".join(filter(None, [os.environ.get(name, ""), _LOCAL])) for name in ("NO_PROXY", "no_proxy")}
        values = {**os.environ, **local, **self.env, MARK: mark}
        return {name: value for name, value in values.items() if value}


class EpisodeWorker(ABC):
    """A process that plays episodes.

    ``open``: the episodes that it plays, with what each caller waits for.
    ``fault``: the rule that it broke, "" for none. ``unresponsive``: it was killed because it ignored a cancelled episode.
    ``answered``: it has ended an episode.
    """

    def __init__(self, command: WorkerCommand) -> None:
        self.open: dict[str, asyncio.Future[EpisodeEnd]] = {}
        self.fault, self.unresponsive, self.answered = "", False, False
        self.exited: asyncio.Event
        self._episodes = command.episodes
        self._input: asyncio.WriteTransport
        self._output: asyncio.StreamReader

    @property
    def room(self) -> int:
        """The number of further episodes that it may play now."""
        return self._episodes - len(self.open)

    @property
    @abstractmethod
    def killed(self) -> bool:
        """Whether a signal ended it, or something else that says nothing about it."""

    @property
    @abstractmethod
    def left(self) -> bool:
        """Whether it ended by itself, without an error."""

    @abstractmethod
    async def kill(self) -> None:
        """End it with everything that it started, and wait for that."""

    @abstractmethod
    def death(self) -> str:
        """Return how it ended, with the last line of its standard error."""

    def send(self, message: Mapping[str, Any]) -> None:
        """Write a message. If the process is gone, nothing happens."""
        self.write(as_line(message))

    def write(self, line: bytes) -> None:
        """Write a line. If the process is gone, nothing happens."""
        if not self.exited.is_set():
            self._input.write(line)

    async def line(self) -> bytes:
        """Return the next line that it writes, b"" once it has ended. Raises ValueError for a line that is too long."""
        return await self._output.readline()

    async def leave(self, seconds: float) -> None:
        """Close its standard input, so that it can end by itself, and wait this long for it."""
        self._input.close()
        try:
            await asyncio.wait_for(self.exited.wait(), seconds)
        except TimeoutError:
            return


class _Protocol(SubprocessStreamProtocol):
    """``exited`` is set when the process ends, even if a child of it still has its standard output."""

    def __init__(self) -> None:
        super().__init__(limit=LONGEST_LINE, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()

    def process_exited(self) -> None:
        super().process_exited()
        self.exited.set()


class PlainWorker(EpisodeWorker):
    """A process of this machine, in its own session, with the rights of the user."""

    def __init__(self, command: WorkerCommand, protocol: _Protocol, transport: asyncio.SubprocessTransport, mark: str) -> None:
        super().__init__(command)
        self._process = Process(transport, protocol, asyncio.get_running_loop())
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._input, self._output, self.exited = self._process.stdin.transport, self._process.stdout, protocol.exited
        self._mark, self._tail = mark, deque[str](maxlen=_LINES)
        self._errors = asyncio.create_task(self._read_errors())
        self._children_end = asyncio.create_task(self._end_children())

    @classmethod
    async def start(cls, command: WorkerCommand) -> EpisodeWorker:
        """Start the process. Raises OSError if there is no such program or folder."""
        mark = new_mark()
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            _Protocol,
            *command.argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            cwd=command.cwd,
            env=command.variables(mark),
            start_new_session=True,
        )
        return cls(command, protocol, transport, mark)

    @property
    def killed(self) -> bool:
        return (self._process.returncode or 0) < 0

    @property
    def left(self) -> bool:
        return self._process.returncode == 0 and not self.fault

    async def kill(self) -> None:
        await asyncio.to_thread(kill_tree, self._process.pid, self._mark)
        await self._children_end
        await asyncio.wait([self._errors], timeout=1.0)

    def death(self) -> str:
        return ending(self._process.returncode or 0, self._tail)

    async def _end_children(self) -> None:
        """End what it leaves behind, which would keep its standard output open."""
        await self.exited.wait()
        await asyncio.to_thread(kill_tree, self._process.pid, self._mark)

    async def _read_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(1 << 14):
            first, *others = data.decode(errors="replace").split("\n")
            last = self._tail.pop() if self._tail else ""
            self._tail.extend(line[-_LONGEST_ERROR:] for line in (last + first, *others))


def ending(code: int, errors: Iterable[str]) -> str:
    """Return in words how a process ended: its exit code, or minus the signal, and the last of its lines on standard error."""
    how = f"was killed by signal {-code} ({signal.strsignal(-code)})" if code < 0 else f"ended with exit code {code}"
    return how + last_line(errors)


def last_line(errors: Iterable[str]) -> str:
    """Return ": " and the last line that is not empty, "" if there is none."""
    lines = [line.strip() for line in errors if line.strip()]
    return f": {lines[-1][:300]}" if lines else ""
