"""What the tests of sandboxes share: a sandbox of each level that this machine gives, and a host with something to attack."""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from rlcore_plugin_sandbox.zygote_process import ZygoteProcess

from rlcore.api import SandboxError
from rlcore.api.sandbox import Job, Limits, ProgramResult, Sandbox, SandboxOptions, open_sandbox
from tests.levels import LEVELS, need


def opened(level: str, **options) -> Sandbox:
    need(level)
    return open_sandbox(SandboxOptions(level=level, **options))


@pytest.fixture(scope="module", params=LEVELS)
def box(request) -> Iterator[Sandbox]:
    """One open sandbox a level."""
    with opened(request.param) as sandbox:
        yield sandbox


FUSE = 120.0
"""Seconds of wall clock for programs that end by another limit, or by themselves: a busy machine gives them little of its time."""


def run(box: Sandbox, source: str | bytes | None = None, stdin: bytes = b"", *, argv=(), holding=None, **limits) -> ProgramResult:
    return box.run(Job(source=source, argv=argv, stdin=stdin, files=holding or {}, limits=Limits(**{"wall_seconds": FUSE, **limits})))


def run_begun(box: Sandbox, source: str, **limits) -> tuple[ProgramResult, int | None]:
    """Like ``run`` with a short wall limit; repeats if the machine did not start the program in time. Returns (result, pid of the zygote
    that ran it)."""
    while True:
        zygote = box.pid
        try:
            return run(box, source, **limits), zygote
        except SandboxError as error:
            if "not built in time" not in str(error):
                raise


HELD = "import sys\nprint('begun', file=sys.stderr, flush=True)\nprint(input().ljust(1 << 17))"
"""A program that answers with its input and ends no sooner than the host reads: a pipe does not take so much."""


def while_it_runs(monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], times: int = 1) -> None:
    """Call ``act`` in the middle of each of the next ``times`` runs of ``HELD``, before the host reads anything. A run that ends before it
    began does not count: its zygote was still dying of an earlier act, and the host runs it again."""
    real, left = ZygoteProcess._collect, [None] * times

    def collect(self: ZygoteProcess, stdout: int, stderr: int, job: Job) -> ProgramResult:
        if left and (begun := _first_line(stderr)):
            assert begun == b"begun\n"
            left.pop()
            act()
        return real(self, stdout, stderr, job)

    monkeypatch.setattr(ZygoteProcess, "_collect", collect)


def _first_line(descriptor: int) -> bytes:
    """A line, which may come in several writes; b"" if the other end was closed first."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(descriptor, 1)):
        line += more
    return line


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


def gone(pid: int, seconds: float = 10.0) -> bool:
    until = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not alive(pid)


def processes_named(word: str) -> list[int]:
    """Processes of this machine with a word in their command line."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if word.encode() in (folder / "cmdline").read_bytes():
                    found.append(int(folder.name))
    return found


def children(pid: int) -> list[int]:
    """All processes below one."""
    found = []
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if int((folder / "stat").read_text().rpartition(")")[2].split()[1]) == pid:
                    found += [int(folder.name), *children(int(folder.name))]
    return found


@dataclass
class Host:
    """Things of this machine that nothing inside may reach; ``given`` is what the attacking programs are told about them."""

    given: dict
    reached: list[str]

    def attack(self, box: Sandbox, body: str, **limits) -> ProgramResult:
        source = PREAMBLE + "\n".join(f"    {line}" for line in body.strip().splitlines()) + POSTAMBLE
        return run(box, source, json.dumps(self.given).encode() + b"\n", **limits)


PREAMBLE = """
import ctypes, errno, fcntl, json, mmap, os, resource, signal, socket, struct, sys, threading, time
H = json.loads(input())
libc = ctypes.CDLL(None, use_errno=True)
def syscall(number, *arguments):
    result = libc.syscall(ctypes.c_long(number), *[ctypes.c_long(a) if isinstance(a, int) else a for a in arguments])
    return -ctypes.get_errno() if result < 0 else result
def hole(*words): print("HOLE", *words, flush=True)
def attempt(what, function, *arguments):
    try:
        result = function(*arguments)
    except (OSError, RuntimeError, MemoryError, ValueError):
        return
    if not (isinstance(result, int) and result < 0): hole(what, repr(result)[:80])
try:
"""
POSTAMBLE = """
finally:
    print("END", flush=True)
"""


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    reached: list[str] = []
    with contextlib.ExitStack() as closing:
        # Not below /tmp, which level landlock turns into the program's own folder for functions of Python.
        folder = closing.enter_context(tempfile.TemporaryDirectory(prefix="rlcore-test-host-", dir="/var/tmp"))
        secret = Path(folder, "secret")
        secret.write_text("s3cr3t")
        Path(folder).chmod(0o777)
        secret.chmod(0o666)
        tcp = closing.enter_context(socket.create_server(("127.0.0.1", 0)))
        sockets = {}
        for name, kind, address in (
            ("stream", socket.SOCK_STREAM, f"{folder}/stream"),
            ("datagram", socket.SOCK_DGRAM, f"{folder}/datagram"),
            ("abstract", socket.SOCK_STREAM, f"\0rlcore-test-{os.getpid()}-s"),
            ("abstract_datagram", socket.SOCK_DGRAM, f"\0rlcore-test-{os.getpid()}-d"),
        ):
            server = closing.enter_context(socket.socket(socket.AF_UNIX, kind))
            server.bind(address)
            if kind == socket.SOCK_STREAM:
                server.listen()
            sockets[name] = address
        for name in ("stream", "datagram"):
            Path(sockets[name]).chmod(0o777)
        victim = closing.enter_context(subprocess.Popen(["/bin/sleep", "300"], stdin=subprocess.PIPE))
        closing.callback(victim.kill)
        shm, key = _shared_segment(closing)
        posix = Path(f"/dev/shm/sandbox-host-{os.getpid()}")  # none of the names that tests of weights look for
        posix.write_text("s3cr3t")
        closing.callback(posix.unlink)
        given = {
            "secret": str(secret),
            "folder": folder,
            "port": tcp.getsockname()[1],
            "victim": victim.pid,
            "host": os.getpid(),
            **sockets,
        }
        yield Host({**given, "shm": shm, "key": key, "posix": str(posix)}, reached)


def _shared_segment(closing: contextlib.ExitStack) -> tuple[int, int]:
    """A System V segment that anybody of this machine may attach."""
    libc = ctypes.CDLL(None)
    key = 0x7A000000 | (os.getpid() & 0xFFFFFF)
    shm = libc.shmget(key, 4096, 0o1000 | 0o666)
    closing.callback(libc.shmctl, shm, 0, None)
    return shm, key
