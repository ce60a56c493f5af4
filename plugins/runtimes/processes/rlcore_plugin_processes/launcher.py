"""A launcher that starts workers as processes of this machine. Each is a fresh interpreter in its own session, called over a socket. Its
end also ends the processes that it started."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore_plugin_workers.environments import Interpreters
from rlcore_plugin_workers.workers import Launcher, Placement, Worker, WorkerDiedError

from rlcore.api import RunError
from rlcore.api.runtime import thread_variables
from rlcore_plugin_processes.worker_link import CallRequest, Link

__all__ = ["ProcessLauncher", "ProcessWorker"]

_BOOT = """
import json, os, select, signal, sys
given = json.loads(sys.argv[1])
try:
    driver = os.pidfd_open(given["driver"])
except (AttributeError, OSError):
    driver = None
if os.getppid() != given["driver"]:
    os._exit(0)
if driver is not None and os.fork() == 0:
    os.closerange(0, driver)
    os.closerange(driver + 1, 1 << 16)
    select.select([driver], [], [])
    os.killpg(0, signal.SIGKILL)
if driver is not None:
    os.close(driver)
sys.path[:] = given["path"] or sys.path
from rlcore_plugin_processes.worker_link import serve
serve(given["descriptor"], given["name"], given["calls"])
"""
"""The program of a worker. It first forks a guard that waits for the end of the driver's process (not of a thread of it) and then kills the
group. So a worker ends even if a library holds the interpreter lock, and the processes that it started end too."""

_MARK = "RLCORE_WORKER"
"""A variable that every process of a worker inherits. It identifies processes that left the worker's session."""
_LINGERING = 1.0
"""The seconds that the children of a dead process may take to end, and that reading its output may take. A descendant that is not found may
hold the socket open."""


class ProcessLauncher(Launcher):
    """Launches workers in processes of this machine.

    The lines that a worker prints, on standard output too, go to this process's standard error with the worker's name in front. A worker's
    standard input is empty, and Ctrl-C in the terminal does not reach it.
    """

    def __init__(self) -> None:
        self._workers: list[ProcessWorker] = []
        self._interpreters = Interpreters()

    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> ProcessWorker:
        """See ``Launcher``. Raise ConfigError if the environment of the placement does not fit, and RunError if the machine cannot start
        another process."""
        worker = ProcessWorker(name, placement, *self._interpreters.of(placement.environment))
        self._workers.append(worker)
        worker.call("", host, *arguments)
        return worker

    def close(self) -> None:
        """Kill all remaining workers at the same time."""
        for worker in self._workers:
            worker.signal()
        for worker in self._workers:
            worker.kill()
        self._interpreters.close()


class ProcessWorker(Worker):
    """A worker in its own process; ``pid`` is also the id of its session and of its process group.

    With it end its process group and every descendant elsewhere that still has the inherited environment. A descendant that left the
    session and cleared its environment is not reached.
    """

    def __init__(self, name: str, placement: Placement, python: str, variables: Mapping[str, str]) -> None:
        """Start the process. ``variables``: those of the environment to which ``python`` belongs; empty for the driver's own environment,
        whose import path the worker then gets."""
        self.name, self._mark, self._last_line = name, secrets.token_hex(8), ""
        self._lock, self._gone = threading.Lock(), threading.Event()
        self._channel, theirs = socket.socketpair()
        with theirs:
            try:
                self._popen = self._start(placement, python, variables, theirs.fileno())
            except OSError as error:
                self._channel.close()
                raise RunError(f"{name} could not be started: {error}") from error
        self.pid = self._popen.pid
        self._link = Link(self._channel, "the driver", self._forward, queued=True)
        self._listens, self._reads, waits = (
            threading.Thread(target=target, name=name, daemon=True) for target in (self._link.listen, self._read, self._wait)
        )
        for thread in (self._listens, self._reads, waits):
            thread.start()

    def _start(self, placement: Placement, python: str, variables: Mapping[str, str], descriptor: int) -> subprocess.Popen[bytes]:
        path = None if variables else sys.path
        given = {"driver": os.getpid(), "path": path, "descriptor": descriptor, "name": self.name, "calls": placement.calls}
        devices = {} if placement.devices is None else {"CUDA_VISIBLE_DEVICES": placement.devices}
        return subprocess.Popen(
            [python, "-P", "-c", _BOOT, json.dumps(given)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={**os.environ, **thread_variables(placement.threads), **devices, **variables, _MARK: self._mark},
            pass_fds=[descriptor],
            start_new_session=True,
        )

    def call(self, method: str, *arguments: Any, beside: bool = False) -> Future[Any]:
        """See ``Worker``. An array among the arguments must not change before the answer arrives."""
        return self._link.call(0, method, arguments, beside=beside)

    def kill(self) -> None:
        """See ``Worker``."""
        self.signal()
        self._gone.wait()

    def signal(self) -> None:
        """Send SIGKILL to the process group without waiting."""
        with self._lock, suppress(ProcessLookupError):
            if self._popen.returncode is None:  # it is not reaped, so no other process has its number
                os.killpg(self.pid, signal.SIGKILL)

    def _forward(self, request: CallRequest) -> None:
        """Pass a call of the process to a worker on this side."""

        def answer(future: Future[Any]) -> None:
            error = CancelledError() if future.cancelled() else future.exception()
            self._link.answer(request, None if error else future.result(), error)

        try:
            worker = self._link.handed[request.key]
            worker.call(request.method, *request.arguments(), beside=request.beside).add_done_callback(answer)
        except Exception as error:
            self._link.answer(request, None, error)

    def _read(self) -> None:
        assert self._popen.stdout is not None
        with self._popen.stdout as lines:
            for line in lines:
                text = line.decode(errors="replace").rstrip().rpartition("\r")[2]  # of a progress bar only the last state
                self._last_line = text.strip() or self._last_line
                with suppress(ValueError, OSError):  # standard error is closed
                    sys.stderr.write(f"{self.name}: {text}\n")

    def _wait(self) -> None:
        """Wait for the end of the process, kill its descendants, and fail its calls."""
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # other code has reaped it
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # unreaped, so that no other group gets its number
        else:
            self._listens.join()
        self.signal()
        _kill_marked(f"{_MARK}={self._mark}".encode())
        self._reads.join(_LINGERING)
        self._listens.join(_LINGERING)
        with suppress(OSError):
            self._channel.shutdown(socket.SHUT_RDWR)
        self._listens.join()
        with self._lock:
            code = self._popen.wait()
        hint = "; the system does that if memory runs out" if code == -signal.SIGKILL else ""
        how = f"killed by signal {-code} ({signal.strsignal(-code)}{hint})" if code < 0 else f"exit code {code}"
        details = f"{how}, its last line: {self._last_line[:200]}" if self._last_line else how
        self._link.end(lambda: WorkerDiedError(self.name, f"the process of {self.name} died ({how})", details))
        self._channel.close()
        self._gone.set()


def _kill_if_marked(pid: int, mark: bytes) -> None:
    """Kill a process if its environment has the mark. The descriptor always means the same process, while the number may belong to another
    one by then."""
    descriptor = os.pidfd_open(pid)
    try:
        if mark in Path(f"/proc/{pid}/environ").read_bytes():
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _kill_marked(mark: bytes) -> None:
    """Send SIGKILL to every process whose environment has the mark, until none is left or the time is over. Do nothing if /proc does not
    exist."""
    found, until = True, time.monotonic() + _LINGERING
    while found and time.monotonic() < until:
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # another user's, or gone
                if mark in (process / "environ").read_bytes():
                    found = True
                    _kill_if_marked(int(process.name), mark)
        time.sleep(0.002)
