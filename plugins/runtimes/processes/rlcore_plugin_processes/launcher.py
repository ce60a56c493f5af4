"""Starts workers as processes of this machine: fresh interpreters in sessions of their own, called over sockets, ended with what they
started."""

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

from rlcore_plugin_workers.workers import Launcher, Placement, Worker, WorkerDiedError

from rlcore.api import RunError
from rlcore.api.runtime import Interpreters, thread_variables
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
"""The program of a worker. First of all it forks a guard that waits for the end of the driver's process (not of a thread of it) and then
kills the group: a worker whose libraries hold the interpreter lock ends too, and what it started does not live on."""

_MARK = "RLCORE_WORKER"
"""Variable that every process of a worker inherits: those that left its session are found by it."""
_LINGERING = 1.0
"""Seconds for what a dead process started to end, and for what it wrote to be read: a descendant that is not found may hold its socket."""


class ProcessLauncher(Launcher):
    """Workers in processes of this machine. What one prints, on standard output too, goes line by line to this process's standard error,
    its name in front. Its standard input is empty, and Ctrl-C in the terminal does not reach it."""

    def __init__(self) -> None:
        self._workers: list[ProcessWorker] = []
        self._interpreters = Interpreters()

    def start(self, host: type, *arguments: Any, name: str, placement: Placement) -> ProcessWorker:
        """See ``Launcher``. ConfigError if the environment of the placement does not fit, RunError if the machine has no room for a
        process."""
        worker = ProcessWorker(name, placement, *self._interpreters.of(placement.environment))
        self._workers.append(worker)
        worker.call("", host, *arguments)
        return worker

    def close(self) -> None:
        """Kill every worker that is left, all at once."""
        for worker in self._workers:
            worker.signal()
        for worker in self._workers:
            worker.kill()
        self._interpreters.close()


class ProcessWorker(Worker):
    """One process; ``pid`` is also the id of its session and of its process group.

    Its process group ends with it, and every descendant elsewhere that still has the environment that it inherited. A descendant that
    left the session and cleared its environment is not reached.
    """

    def __init__(self, name: str, placement: Placement, python: str, variables: Mapping[str, str]) -> None:
        """``variables``: of the environment that ``python`` is of; none for the driver's own, whose path it gets."""
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
        """See ``Worker``. An array among the arguments must stay as it is until the answer is there."""
        return self._link.call(0, method, arguments, beside=beside)

    def kill(self) -> None:
        """See ``Worker``."""
        self.signal()
        self._gone.wait()

    def signal(self) -> None:
        """SIGKILL to its process group; does not wait."""
        with self._lock, suppress(ProcessLookupError):
            if self._popen.returncode is None:  # it is not reaped, so the number is still its own
                os.killpg(self.pid, signal.SIGKILL)

    def _forward(self, request: CallRequest) -> None:
        """A call of the process to a worker of this side."""

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
                text = line.decode(errors="replace").rstrip().rpartition("\r")[2]  # of a progress bar its last state
                self._last_line = text.strip() or self._last_line
                with suppress(ValueError, OSError):  # standard error is closed
                    sys.stderr.write(f"{self.name}: {text}\n")

    def _wait(self) -> None:
        """Wait for its end, end what it started, and fail its calls."""
        if hasattr(os, "waitid"):
            with suppress(ChildProcessError):  # somebody else has reaped it
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)  # unreaped, so its group cannot become another's
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
    """The descriptor names one process for good, so what has the mark now is what ends: its number may be another's by the next look."""
    descriptor = os.pidfd_open(pid)
    try:
        if mark in Path(f"/proc/{pid}/environ").read_bytes():
            signal.pidfd_send_signal(descriptor, signal.SIGKILL)
    finally:
        os.close(descriptor)


def _kill_marked(mark: bytes) -> None:
    """SIGKILL to every process whose environment has the mark, until none is left (or one does not end); nothing if there is no /proc."""
    found, until = True, time.monotonic() + _LINGERING
    while found and time.monotonic() < until:
        found = False
        for process in Path("/proc").glob("[0-9]*"):
            with suppress(OSError):  # another user's, or gone
                if mark in (process / "environ").read_bytes():
                    found = True
                    _kill_if_marked(int(process.name), mark)
        time.sleep(0.002)
