"""Captures standard output and standard error of this process and of the programs that it starts, line by line.

It redirects the file descriptors, so nothing escapes: handlers of ``logging`` that hold an old stream, libraries in C, children.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from types import TracebackType

__all__ = ["CapturedOutput"]

_TICK_SECONDS = 0.25
_PATIENCE_SECONDS = 0.5
"""Seconds after which a line without an end counts as a line: it may be a question."""
_LONGEST_LINE = 1 << 16
_DRAIN_SECONDS = 5.0
_LAST_WORDS = "read _; exec cat /dev/fd/{pipe}"
"""A shell that waits until this process has died, and then prints the output that nothing could read any more."""


class CapturedOutput:
    """A context that captures output. Inside it, ``say`` receives whole lines written to ``streams`` (1, 2), from a thread that also calls
    ``tick`` several times a second.

    ``terminal`` is a descriptor of their usual destination, which stays open. Output after the end, from processes that outlive the
    context, goes to ``say`` too; after the end of this process it goes to ``terminal``.
    """

    def __init__(self, streams: Iterable[int], terminal: int, say: Callable[[str], None], tick: Callable[[], None]) -> None:
        self._streams, self._terminal, self._say, self._tick = tuple(streams), terminal, say, tick
        self._kept: dict[int, int] = {}
        self._partial, self._since = b"", 0.0
        self._asked, self._drained, self._ended = threading.Event(), threading.Event(), False
        self._broken = False

    def __enter__(self) -> CapturedOutput:
        _flush()
        self._pipe, write = os.pipe()
        self._wake, self._waker = os.pipe()
        os.set_blocking(self._pipe, False)
        self._kept = {stream: os.dup(stream) for stream in self._streams}
        self._watcher = self._watched()
        for stream in self._streams:
            os.dup2(write, stream)
        os.close(write)
        self._reader = threading.Thread(target=self._read, name="rlcore-output", daemon=True)
        self._reader.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        _flush()
        for stream, kept in self._kept.items():
            os.dup2(kept, stream)
            os.close(kept)
        self._asked.set()
        os.write(self._waker, b".")
        self._drained.wait(_DRAIN_SECONDS)
        if self._ended and self._watcher is not None:  # else a process still writes, and the shell stays for it
            self._watcher.communicate()

    def _watched(self) -> subprocess.Popen[bytes] | None:
        command = ["/bin/sh", "-c", _LAST_WORDS.format(pipe=self._pipe)]
        with suppress(OSError):  # a machine without a shell
            return subprocess.Popen(  # its own session: Ctrl-C must not reach it
                command,
                stdin=subprocess.PIPE,
                stdout=self._terminal,
                stderr=subprocess.DEVNULL,
                pass_fds=(self._pipe,),
                start_new_session=True,
            )
        return None

    def _read(self) -> None:
        while not self._ended:
            draining = self._asked.is_set() and not self._drained.is_set()
            watched = [self._pipe] if self._asked.is_set() else [self._pipe, self._wake]
            ready, _, _ = select.select(watched, [], [], 0 if draining else _TICK_SECONDS)
            if self._pipe in ready:
                self._take()
            elif draining:
                self._flush_partial()
                self._drained.set()
            self._idle()
        self._flush_partial()
        self._drained.set()

    def _take(self) -> None:
        with suppress(BlockingIOError):
            read = os.read(self._pipe, _LONGEST_LINE)
            self._ended = not read
            *lines, self._partial = (self._partial + read).split(b"\n")
            self._since = time.monotonic()
            if lines:
                self._tell(b"\n".join(lines))
            if len(self._partial) >= _LONGEST_LINE:
                self._flush_partial()

    def _idle(self) -> None:
        if self._partial and b"\r" not in self._partial and time.monotonic() - self._since > _PATIENCE_SECONDS:
            self._flush_partial()
        if not self._drained.is_set():
            self._call(self._tick)

    def _flush_partial(self) -> None:
        if self._partial:
            text, self._partial = self._partial, b""
            self._tell(text)

    def _tell(self, text: bytes) -> None:
        if not self._call(lambda: self._say(text.decode(errors="replace"))):
            with suppress(OSError):
                os.write(self._terminal, text + b"\n")

    def _call(self, what: Callable[[], None]) -> bool:
        """Call ``what`` and return whether it succeeded. A broken display must not block writers, so the reader continues without it."""
        try:
            if not self._broken:
                what()
        except Exception:
            self._broken = True
        return not self._broken


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # full, closed, or none
            stream.flush()
