"""Programs run by ``subprocess`` with resource limits and no walls: what the tests' HTTP service runs, and what broken sandboxes spoil."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from rlcore.api.sandbox import Job, Level, Limit, ProgramResult, Sandbox, SandboxError

__all__ = ["PlainSandbox", "run_plainly"]

_STDERR = 4096


def run_plainly(job: Job, home: Path) -> ProgramResult:
    """Run the job in the folder ``home``; nothing of it is left in the process table."""
    for name, content in job.files.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_bytes(content)
    words = list(job.argv)
    if job.source is not None:
        source = job.source.encode("utf-8", "surrogatepass") if isinstance(job.source, str) else job.source
        hidden = home.parent / f"{home.name}.py"
        hidden.write_bytes(source)
        words = [sys.executable, "-S", "-c", _START, str(hidden)]
    try:
        process = subprocess.Popen(
            words,
            cwd=home,
            env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8", "HOME": str(home), "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            preexec_fn=_bounded(job),
        )
    except OSError as error:
        return ProgramResult(exit_code=127, signal=None, stdout=b"", stderr=str(error).encode())
    return _collected(process, job)


_START = "import sys; exec(compile(open(sys.argv.pop(), 'rb').read(), 'solution.py', 'exec', dont_inherit=True), {'__name__': '__main__'})"


def _bounded(job: Job) -> Callable[[], None]:
    cpu = max(1, round(job.limits.cpu_seconds))

    def bound() -> None:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu, cpu + 1))
        resource.setrlimit(resource.RLIMIT_AS, (job.limits.memory_bytes, job.limits.memory_bytes))
        resource.setrlimit(resource.RLIMIT_FSIZE, (job.limits.disk_bytes, job.limits.disk_bytes))

    return bound


def _collected(process: subprocess.Popen[bytes], job: Job) -> ProgramResult:
    output, errors, too_much = bytearray(), bytearray(), threading.Event()

    def read(stream: IO[bytes], into: bytearray, most: int | None) -> None:
        while data := os.read(stream.fileno(), 1 << 16):
            into += data
            if most is None:
                del into[:-_STDERR]
            elif len(into) > most:
                too_much.set()
                return

    def write(stream: IO[bytes]) -> None:
        with contextlib.suppress(OSError), stream:
            stream.write(job.stdin)

    assert process.stdin is not None
    assert process.stdout is not None
    assert process.stderr is not None
    threads = [
        threading.Thread(target=read, args=(process.stdout, output, job.limits.output_bytes), daemon=True),
        threading.Thread(target=read, args=(process.stderr, errors, None), daemon=True),
        threading.Thread(target=write, args=(process.stdin,), daemon=True),
    ]
    for thread in threads:
        thread.start()
    started = time.monotonic()
    status, usage = 0, None
    while usage is None:
        found, status, used = os.wait4(process.pid, os.WNOHANG)
        spent = time.monotonic() - started
        if found:
            usage = used
        elif too_much.is_set() or spent > job.limits.wall_seconds:
            os.killpg(process.pid, signal.SIGKILL)
            _, _, usage = os.wait4(process.pid, 0)
            status = -1
        else:
            time.sleep(0.005)
    process.returncode = 0  # it was waited for here
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    for thread in threads:
        thread.join()
    process.stdout.close()
    process.stderr.close()
    code = None if status == -1 else os.waitstatus_to_exitcode(status)
    limit = Limit.OUTPUT if too_much.is_set() else Limit.WALL if code is None else Limit.CPU if code == -signal.SIGXCPU else None
    return ProgramResult(
        exit_code=code if code is not None and code >= 0 and limit is None else None,
        signal=-code if code is not None and code < 0 and limit is None else None,
        stdout=bytes(output[: job.limits.output_bytes]),
        stderr=bytes(errors),
        limit=limit,
        wall_seconds=time.monotonic() - started,
        cpu_seconds=usage.ru_utime + usage.ru_stime,
        memory_bytes=usage.ru_maxrss << 10,
    )


class PlainSandbox(Sandbox):
    """Level none, by ``run_plainly``: a sandbox that keeps every rule but those about walls and processes."""

    level = Level.NONE

    def __init__(self) -> None:
        self._lock, self._closed = threading.Lock(), False

    def run(self, job: Job) -> ProgramResult:
        if sum(map(len, job.files.values())) > job.limits.disk_bytes:
            raise ValueError("the job's files do not fit")
        with self._lock, tempfile.TemporaryDirectory() as folder:
            if self._closed:
                raise SandboxError("the sandbox is closed")
            home = Path(folder, "home")
            home.mkdir()
            try:
                return self.ran(job, home)
            finally:
                for path in [*home.rglob("*")]:
                    if path.is_dir() and not path.is_symlink():
                        path.chmod(0o700)

    def ran(self, job: Job, home: Path) -> ProgramResult:
        """One run in a fresh folder."""
        return run_plainly(job, home)

    def describe(self) -> str:
        return "none (subprocess)"

    def close(self) -> None:
        self._closed = True
