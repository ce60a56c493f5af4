"""One worker process from the pool's side: started, written and read without blocking, and killed with all its children."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections import deque
from collections.abc import Iterator
from enum import Enum, auto
from pathlib import Path
from typing import Any

from rlcore.host.threads import thread_variables
from rlcore.rewards.dead_worker import MARK, kill_orphans, new_mark
from rlcore.rewards.worker_protocol import FrameReader, LoopStatus

__all__ = ["WorkerProcess", "WorkerState"]

# -P keeps the working directory off the path until the parent's path is set: a stray random.py there would shadow the library's.
_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rlcore.rewards.worker import main; main(*map(int, sys.argv[2:]))"
_TAIL = 4096
_HELD = re.compile(rb"^Rss(?:Anon|Shmem):\s*(\d+) kB$", re.MULTILINE)


class WorkerState(Enum):
    """The state of a worker."""

    STARTING = auto()
    IDLE = auto()
    BUSY = auto()
    RETIRING = auto()
    DEAD = auto()


class WorkerProcess:
    """A fresh interpreter in its own session. It dies with the thread that creates it, which must live as long as the pool.

    ``job`` holds the tasks that it received and has not answered; it is scoring the first of them. ``due`` is the next time (monotonic
    clock) at which it must be checked, None if nothing is awaited. ``limit`` is the deadline of the first task. ``writing``: the selector
    waits until its socket can be written. ``served``: it has answered a task. ``opened`` is the value of ``memory`` when its rewards were
    opened. ``panel`` is the panel of a asynchronous worker, else None.
    """

    def __init__(self, setup: bytes, *, asynchronous: bool = False) -> None:
        self.panel: LoopStatus | None = None
        self._mark = new_mark()
        ours, theirs = socket.socketpair()
        try:
            self.panel = LoopStatus.create() if asynchronous else None
            self.popen = self._start(theirs.fileno())
        except BaseException:
            ours.close()
            if self.panel is not None:
                self.panel.close()
            raise
        finally:
            theirs.close()
        ours.setblocking(False)
        assert self.popen.stderr is not None
        self.stderr = self.popen.stderr
        os.set_blocking(self.stderr.fileno(), False)
        self.channel = ours
        self.death = _death_descriptor(self.popen.pid)
        self.state = WorkerState.STARTING
        self.job: deque[Any] = deque()
        self.due: float | None = None
        self.limit = 0.0
        self.served = False
        self.opened = 0
        self.outbox = bytearray(setup)
        self.writing = True
        self._reader = FrameReader()
        self._tail = b""

    def _start(self, channel: int) -> subprocess.Popen[bytes]:
        shared = [self.panel.descriptor] if self.panel is not None else []
        numbers = [channel, *(shared or [-1]), os.getpid()]
        return subprocess.Popen(
            [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), *map(str, numbers)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            env={**os.environ, **thread_variables(1), MARK: self._mark},
            pass_fds=[channel, *shared],
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its process group."""
        return self.popen.pid

    def memory(self) -> int:
        """Return the bytes that it holds now and that no file backs, without its children; 0 if the system does not report them."""
        try:
            said = Path(f"/proc/{self.pid}/status").read_bytes()
        except OSError:
            return 0
        return 1024 * sum(int(size) for size in _HELD.findall(said))

    def write(self) -> None:
        """Send as much as the socket accepts now. A closed socket is not an error here; ``read`` detects the death."""
        try:
            while self.outbox:
                del self.outbox[: self.channel.send(self.outbox)]
        except BlockingIOError:
            return
        except OSError:
            self.outbox.clear()

    def read(self) -> Iterator[Any]:
        """Yield the messages that have arrived. Raises EOFError after the last one if the worker closed its end."""
        while self.state is not WorkerState.DEAD:
            try:
                data = self.channel.recv(1 << 16)
            except BlockingIOError:
                return
            except OSError as error:
                raise EOFError(str(error)) from error
            if not data:
                raise EOFError("closed")
            yield from self._reader.feed(data)

    def read_stderr(self) -> bool:
        """Keep the last lines of its standard error. Return False once that stream is closed."""
        try:
            data = os.read(self.stderr.fileno(), 1 << 16)
        except BlockingIOError:
            return True
        self._tail = (self._tail + data)[-_TAIL:]
        return bool(data)

    def kill(self) -> None:
        """Send SIGKILL to the whole process group. The process must still be reaped."""
        try:
            os.killpg(self.pid, signal.SIGKILL)
        except ProcessLookupError:
            return

    def reap(self) -> None:
        """Wait for the killed process, end the processes that it left behind, and release its descriptors."""
        self.popen.wait()
        kill_orphans(self._mark)
        self.read_stderr()
        self.channel.close()
        self.stderr.close()
        if self.death is not None:
            os.close(self.death)
            self.death = None
        if self.panel is not None:
            self.panel.close()
            self.panel = None

    @property
    def killed(self) -> bool:
        """Whether a signal ended it. Call after ``reap``."""
        return (self.popen.returncode or 0) < 0

    def death_notice(self) -> str:
        """Return how it died, for a message. Call after ``reap``."""
        code = self.popen.returncode
        hint = "; the system does that if memory runs out" if code == -signal.SIGKILL else ""
        how = f"killed by signal {-code} {signal.strsignal(-code) or ''}{hint}" if code is not None and code < 0 else f"exit code {code}"
        lines = self._tail.decode(errors="replace").strip().splitlines()
        return f"{how}: {lines[-1].strip()[:200]}" if lines and (code or 0) > 0 else how


def _death_descriptor(pid: int) -> int | None:
    """Return a descriptor that becomes readable when the process ends, or None if the system has none.

    Without it, the closed socket reports the death."""
    if not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None
