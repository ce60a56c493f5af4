"""The supervisor of a session: process 1 inside bubblewrap. It starts the command, relays its connections, keeps the end of its standard
error, and ends the session at its end or at a limit.

All processes are in the supervisor's pid namespace: if it ends for any reason, the kernel kills them. They cannot signal, trace or read it,
because it is process 1, cannot be dumped, and the system call filter refuses the rest.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import resource
import select
import signal
import socket
import time
from collections.abc import Mapping
from typing import Any, NoReturn

from rlcore_plugin_sandbox.jail import namespaces, program, seccomp, watch
from rlcore_plugin_sandbox.jail.file_locks import PAUSE, FileLocks, keep_devices_shared
from rlcore_plugin_sandbox.jail.syscalls import machine

__all__ = ["HOME", "WORKSPACE", "main"]

HOME, WORKSPACE = "/tmp/home", "/tmp/workspace"
"""The folder of the agent's own files, and its working folder, which the owner can read."""
_SHARED_MEMORY, _FOLDERS = "/tmp/.shm", "/tmp/.folders"
_TICK = 0.2  # seconds; a session runs for minutes, so a look every 50 ms as in jobs would cost too much
_STDERR = 16 << 10
_DESCRIPTORS, _RELAYS = 1024, 4096
_STACK = 8 << 20
_PR_SET_DUMPABLE = 4
_BY_SIGNAL: dict[int, str] = {signal.SIGXCPU: "cpu", signal.SIGXFSZ: "disk"}


def main(control: int, setup: str) -> None:
    """Run one session for the owner at the other end of ``control``, then end."""
    user = json.loads(setup)
    channel = socket.socket(fileno=control)
    message, (payload, stdin, stdout, *reach), _, _ = socket.recv_fds(channel, 1 << 16, 4)
    limits = json.loads(message)
    with contextlib.suppress(PermissionError):
        os.setgroups([])  # drop root's groups, which its new user would keep; other users may not drop groups
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # process 1 gets no other signal from inside, because it handles none
    stderr, stderr_end = os.pipe()
    listener = _listener(limits["port"]) if reach else None
    keep_devices_shared()
    pid, (workspace, *notifier) = _start((payload, stdin, stdout, stderr_end), limits, (user["uid"], user["gid"]))
    if workspace < 0:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        words = os.read(stderr, _STDERR).decode(errors="replace").strip()
        _say(channel, {"error": words or "its walls could not be built"})
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)  # only now: the owner of a process that cannot be dumped may not map its users
    socket.send_fds(channel, [b'{"ready": true}'], [workspace])
    locks = {descriptor: FileLocks(descriptor, os.fstat(workspace).st_dev) for descriptor in notifier}
    os.close(workspace)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(_RELAYS, hard), hard))
    session = _Session(pid, channel, stderr, limits, locks)
    if listener is not None:
        from rlcore_plugin_sandbox.jail import relay  # imports asyncio, which costs more than all the rest of the supervisor

        relay.start(listener, f"/proc/self/fd/{reach[0]}")
    _say(channel, session.supervise())


def _say(channel: socket.socket, answer: Mapping[str, Any]) -> NoReturn:
    with contextlib.suppress(OSError):  # the owner is gone
        channel.send(json.dumps(answer).encode())
    os._exit(0)


def _listener(port: int) -> socket.socket:
    listener = socket.create_server(("127.0.0.1", port), backlog=512)
    listener.setblocking(False)
    return listener


def _start(descriptors: tuple[int, int, int, int], limits: Mapping[str, Any], user: tuple[int, int]) -> tuple[int, list[int]]:
    """Start the command; return its process id and a descriptor of its working folder, -1 if it could not be started. A second one tells
    calls of ``flock``, if this system has such descriptors."""
    go_out, go = os.pipe()
    ours, theirs = socket.socketpair()
    pid = namespaces.fork(machine(), namespaces.FILES_ONLY)
    if pid == 0:
        os.close(go)
        _be_command(go_out, theirs, descriptors, limits)
    for descriptor in (go_out, *descriptors):
        os.close(descriptor)
    theirs.close()
    with ours:
        try:
            namespaces.map_user(pid, *user)
            os.write(go, b"g")
            _, found, _, _ = socket.recv_fds(ours, 1, 2)
        finally:
            os.close(go)
    return pid, found or [-1]


def _be_command(go: int, ready: socket.socket, descriptors: tuple[int, ...], limits: Mapping[str, Any]) -> NoReturn:
    """Be the first process of the session: wait for a byte from ``go`` (its user is mapped), build its mounts, give up all privileges, and
    execute the command. ``ready`` sends the working folder when only the command can fail."""
    try:
        payload, stdin, stdout, stderr = descriptors
        os.dup2(stderr, 2)
        if os.read(go, 1) != b"g":
            os._exit(1)
        namespaces.be_inside_user()
        namespaces.mount_private(limits)
        for folder in (WORKSPACE, HOME, _SHARED_MEMORY):
            os.mkdir(folder, 0o700)  # noqa: PTH102 - importing pathlib here costs too much
        namespaces.bind(_SHARED_MEMORY, "/dev/shm")
        for folder in limits["folders"]:
            os.makedirs(source := _FOLDERS + folder, 0o755)  # noqa: PTH103
            namespaces.bind(source, folder)
        if limits["terminals"]:
            namespaces.mount_terminals(limits["terminals"])
        job = program.unpack(program.read_all(payload))
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        program.keep_only(ready.fileno())
        os.setsid()
        program.confine(limits, processes=int(limits["processes"]), descriptors=_DESCRIPTORS)
        _, hard = resource.getrlimit(resource.RLIMIT_STACK)
        resource.setrlimit(resource.RLIMIT_STACK, (_STACK if hard == resource.RLIM_INFINITY else min(_STACK, hard), hard))
        program.no_privileges()
        notifier = seccomp.install_session()
        os.chdir(WORKSPACE)
        program.write_files(job["files"])
        for number in (signal.SIGINT, signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)
        workspace = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
        socket.send_fds(ready, [b"r"], [workspace] if notifier < 0 else [workspace, notifier])  # both are closed by execve
    except BaseException as error:
        program.give_up(error)
    try:
        os.execve(job["argv"][0], job["argv"], job["env"])
    except OSError as error:
        os.write(2, f"{job['argv'][0]}: {error.strerror}\n".encode())
        os._exit(127)


class _Session:
    """The command that runs, as its supervisor sees it."""

    def __init__(self, pid: int, channel: socket.socket, stderr: int, limits: Mapping[str, Any], locks: Mapping[int, FileLocks]) -> None:
        self._pid, self._channel, self._stderr, self._limits, self._locks = pid, channel, stderr, limits, locks
        self._started = time.monotonic()
        self._errors = b""
        self._ending = ""
        self._status, self._peak, self._cpu = 0, 0, 0.0
        self._poll = select.poll()

    def supervise(self) -> dict[str, Any]:
        """Wait for the end of the command, a limit, or the owner; then end all processes and return the answer."""
        os.set_blocking(self._stderr, False)
        telling = {self._channel.fileno(), os.pidfd_open(self._pid)}
        for descriptor in (self._stderr, *telling, *self._locks):
            self._poll.register(descriptor, select.POLLIN)
        last = time.monotonic()
        while not self._ending:
            seconds = min(last + _TICK - time.monotonic(), self._left(), *(PAUSE for locks in self._locks.values() if locks.waits))
            ready = {descriptor for descriptor, _ in self._poll.poll(max(0.0, seconds) * 1000)}
            if self._stderr in ready:
                self._read_errors()
            for descriptor, locks in self._locks.items():
                locks.look()
                if descriptor in ready:
                    locks.answer_next()
            if ready & telling or self._left() <= 0 or time.monotonic() >= last + _TICK:
                self._look()
                last = time.monotonic()
        self._end()
        return self._answer()

    def _left(self) -> float:
        return float(self._started + self._limits["wall"] - time.monotonic())

    def _look(self) -> None:
        while self._reap(os.WNOHANG):
            pass
        with contextlib.suppress(BlockingIOError):
            self._ending = self._ending or ("killed" if self._channel.recv(64, socket.MSG_DONTWAIT) else "gone")
        if not self._ending:
            use = watch.everyone()
            self._peak, self._cpu = max(self._peak, use.memory), max(self._cpu, use.cpu)
            over = {"memory": use.memory > self._limits["memory"], "cpu": use.cpu > self._limits["cpu"], "wall": self._left() <= 0}
            self._ending = next((limit for limit, reached in over.items() if reached), "")

    def _reap(self, options: int) -> bool:
        """Reap one process that has ended, the command or one that it left to process 1; return whether there was one."""
        try:
            pid, status, usage = os.wait4(-1, options)
        except ChildProcessError:
            return False
        if pid == self._pid:
            self._status, self._ending = os.waitstatus_to_exitcode(status), self._ending or "ended"
            self._cpu = max(self._cpu, usage.ru_utime + usage.ru_stime)
            self._peak = max(self._peak, usage.ru_maxrss * 1024)
        return pid != 0

    def _end(self) -> None:
        """Kill and reap every other process of the pid namespace, and read what standard error still holds."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(-1, signal.SIGKILL)
        while self._reap(0):
            pass
        while self._read_errors():
            pass

    def _read_errors(self) -> bool:
        """Keep the end of standard error; return whether there may be more."""
        try:
            data = os.read(self._stderr, 1 << 16)
        except BlockingIOError:
            return False
        if not data:
            with contextlib.suppress(KeyError):  # it was at its end before
                self._poll.unregister(self._stderr)
        self._errors = (self._errors + data)[-_STDERR:]
        return bool(data)

    def _answer(self) -> dict[str, Any]:
        code = self._status if self._ending == "ended" else -signal.SIGKILL
        limit = _BY_SIGNAL.get(-code) if self._ending == "ended" else None if self._ending == "killed" else self._ending
        return {
            "exit": code if code >= 0 and not limit else None,
            "signal": -code if code < 0 and not limit else None,
            "limit": limit,
            "wall": time.monotonic() - self._started,
            "cpu": self._cpu,
            "memory": self._peak,
            "stderr": self._errors.decode("latin-1"),
        }
