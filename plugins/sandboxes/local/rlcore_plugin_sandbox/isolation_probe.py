"""A test of the walls before any program is trusted to them. A level whose walls do not hold on this machine is not offered."""

from __future__ import annotations

import contextlib
import secrets
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rlcore.api.sandbox import Job, Level, Limits, Sandbox

__all__ = ["import_gap", "probe"]

_OPEN = "open('/tmp/own', 'w').close()"
_PROGRAM = """
import ctypes, os, socket, sys
path, port = input().split()
path = os.fsencode(path)
found = []
try:
    open(path, "rb").read()
    found.append("files of this machine can be read")
except OSError: pass
try:
    open(path, "ab").close()
    found.append("files of this machine can be written")
except OSError: pass
try:
    socket.create_connection(("127.0.0.1", int(port)), 0.5)
    found.append("the network can be reached")
except OSError: pass
if ctypes.CDLL(None).unshare(0x10000000) == 0: found.append("new namespaces can be made")
if ctypes.CDLL(None).ptrace(16, os.getppid(), None, None) == 0: found.append("other processes can be traced")
with open("/tmp/own", "w") as own: own.write("x")
print(*found, sep="; ", end="")
"""


_IMPORTING = Limits(cpu_seconds=60, wall_seconds=120, memory_bytes=8 << 30)


def import_gap(sandbox: Sandbox, name: str) -> str | None:
    """Return None if a program can import the package; else the reason in one line."""
    ran = sandbox.run(Job(source=f"__import__({name!r})", limits=_IMPORTING))
    if ran.ok:
        return None
    words = ran.stderr.decode(errors="replace").split("\n")
    last = next((" ".join(line.split()) for line in reversed(words) if line.strip()), f"exit code {ran.exit_code}, signal {ran.signal}")
    return f"limit: {ran.limit}" if ran.limit else last[:200]


def probe(sandbox: Sandbox) -> str | None:
    """Return None if the sandbox runs programs and its walls hold; else one sentence about the failure. :raises SandboxError: it died."""
    with _secret() as path, socket.create_server(("127.0.0.1", 0)) as server:
        given = f"{path} {server.getsockname()[1]}\n".encode()
        source = _OPEN if sandbox.level is Level.NONE else _PROGRAM
        ran = sandbox.run(Job(source=source, stdin=given, limits=Limits(cpu_seconds=10, wall_seconds=20)))
    if not ran.ok:
        words = ran.stderr.decode(errors="replace").strip().splitlines()
        return f"{sandbox.level}: a program does not run ({words[-1] if words else ran})"
    if ran.stdout:
        return f"{sandbox.level}: {ran.stdout.decode(errors='replace')}"
    return None


@contextlib.contextmanager
def _secret() -> Iterator[Path]:
    """Yield the path of a file of this machine that no program may reach."""
    with tempfile.TemporaryDirectory(prefix="rlcore-probe-") as folder:
        path = Path(folder, "secret")
        path.write_bytes(secrets.token_bytes(8))
        yield path
