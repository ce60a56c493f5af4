"""The runs of one response: the limits of each, their total time, and the description of a failed run."""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from rlcore.api.sandbox import Job, Limit, Limits, ProgramResult, Sandbox
from rlcore_plugin_code.options import CodeOptions

__all__ = ["OutOfTime", "Runs", "ending"]

_MIB = 1 << 20
_EXCERPT = 120


class OutOfTime(Exception):
    """The time of all tests of a response is over."""


@dataclass
class Runs:
    """Runs programs for one response. The total time is the programs' own, as the sandbox measured it, so that a slow machine does not
    change verdicts. The CPU time that this thread has spent on their answers also counts, since programs could otherwise occupy it for
    minutes."""

    sandbox: Sandbox
    options: CodeOptions
    spent: float = field(default=0.0, init=False)
    own: float = field(default=0.0, init=False)
    _since: float = field(default_factory=time.thread_time, init=False)

    def run(
        self,
        *,
        source: bytes | None = None,
        argv: tuple[str, ...] = (),
        stdin: bytes = b"",
        files: Mapping[str, bytes] | None = None,
        output_bytes: int = 0,
        memory_bytes: int = 0,
        address_bytes: int = 0,
        cpu_seconds: float = 0.0,
    ) -> ProgramResult:
        """Run a program within the limits of the options. ``output_bytes``, ``memory_bytes`` and ``cpu_seconds`` raise these limits;
        ``address_bytes`` is address space that may be reserved.

        :raises OutOfTime: the total time is over, before this run or because of it.
        :raises SandboxError: the sandbox failed.
        """
        options = self.options
        self.own += time.thread_time() - self._since
        left = options.total_seconds - self.spent
        if left <= self.own:
            raise OutOfTime
        files = files or {}
        size = sum(map(len, files.values())) + len(source or b"")
        wall = max(options.wall_seconds, cpu_seconds)
        limits = Limits(
            cpu_seconds=max(options.cpu_seconds, cpu_seconds),
            wall_seconds=min(wall, left),
            memory_bytes=max(options.memory_mb * _MIB, memory_bytes, 8 * size),  # a sandbox refuses files that do not fit
            disk_bytes=max(64 * _MIB, 4 * size),
            output_bytes=max(int(options.output_mb * _MIB), output_bytes),
            processes=options.processes,
            address_bytes=address_bytes,
        )
        ran = self.sandbox.run(Job(source=source, argv=argv, stdin=stdin, files=files, limits=limits))
        self.spent += ran.wall_seconds
        self._since = time.thread_time()
        if ran.limit is Limit.WALL and left < wall:
            raise OutOfTime
        return ran


def ending(ran: ProgramResult, where: str) -> str:
    """Return a description of a failed run, "" for a successful one."""
    if ran.limit is not None:
        return f"limit: {ran.limit}, {where}"
    if ran.ok:
        return ""
    return f"{where}: {_ending(ran)}{_last_line(ran.stderr)}"


def _ending(ran: ProgramResult) -> str:
    if ran.signal is None:
        return f"exit code {ran.exit_code}"
    try:
        return f"signal {signal.Signals(ran.signal).name}"
    except ValueError:
        return f"signal {ran.signal}"


def _last_line(stderr: bytes) -> str:
    lines = stderr.decode("utf-8", "replace").split("\n")
    last = next((line for line in reversed(lines) if line.strip()), "")
    plain = "".join(sign if sign.isprintable() else " " for sign in last[:_EXCERPT]).strip()
    return f": {plain}" if plain else ""
