"""A program on a terminal: a pseudo terminal in front of it, a terminal emulator behind, and what a person would see there."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path

import pyte

__all__ = ["ScreenedProgram"]


class ScreenedProgram:
    """A context: the program is ended when it is left. The emulator cuts lines off, as xterm does, if it gets narrower."""

    def __init__(
        self,
        *command: str,
        columns: int = 80,
        rows: int = 60,
        env: Mapping[str, str] | None = None,
        cwd: Path | None = None,
        stdout: int | None = None,
        unsized: bool = False,
    ) -> None:
        """``stdout``: a descriptor in place of the terminal; ``unsized``: the terminal says that it has 0 columns and rows."""
        self.screen = pyte.Screen(columns, rows)
        self._stream = pyte.ByteStream(self.screen)
        self.raw = b""
        self._own, other = pty.openpty()
        self._resized(*((0, 0) if unsized else (columns, rows)))
        plain = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR")}
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=other,
            stdout=other if stdout is None else stdout,
            stderr=other,
            cwd=cwd,
            env={**plain, "TERM": "xterm-256color", "PYTHONUTF8": "1", "OMP_NUM_THREADS": "1", **(env or {})},
            start_new_session=True,
        )
        os.close(other)

    def __enter__(self) -> ScreenedProgram:
        return self

    def __exit__(self, *failed: object) -> None:
        self.process.kill()
        self.process.wait()
        self.hang_up()

    def hang_up(self) -> None:
        """The person closes the window."""
        if self._own >= 0:
            os.close(self._own)
        self._own = -1

    def wait_for(self, text: str, seconds: float = 60.0) -> None:
        """Read until the screen shows it."""
        deadline = time.monotonic() + seconds
        while text not in "\n".join(self.screen.display):
            assert time.monotonic() < deadline, f"{text!r} is not on the screen:\n{self.text()}"
            assert self._read(0.2) or self.process.poll() is None, f"the program has ended:\n{self.text()}"

    def wait(self, seconds: float = 120.0) -> int:
        """Read to the end; the exit code."""
        deadline = time.monotonic() + seconds
        while self._read(0.2) or self.process.poll() is None:
            assert time.monotonic() < deadline, f"the program does not end:\n{self.text()}"
        return self.process.wait()

    def resize(self, columns: int, rows: int) -> None:
        """The person pulls at the window."""
        self.screen.resize(rows, columns)
        self._resized(columns, rows)

    def lines(self) -> list[str]:
        """What is on the screen, without blank lines at its end."""
        return self.text().splitlines()

    def text(self) -> str:
        """The same, as one text."""
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def _resized(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def _read(self, seconds: float) -> bool:
        if not select.select([self._own], [], [], seconds)[0]:
            return False
        try:
            read = os.read(self._own, 1 << 16)
        except OSError:  # nobody holds the other end
            return False
        self.raw += read
        self._stream.feed(read)
        return bool(read)
