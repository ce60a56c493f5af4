"""Runs commands inside a session, for the process outside. It is a program of its own, which needs only the standard library.

A line in: ``{"id", "command", "cwd", "env", "stdin"}`` with bytes in base64, or ``{"kill": id}``. A line out: ``{"id", "code", "stdout",
"stderr"}``, or ``{"id", "error"}``. Standard output and error of a command are files, so that a daemon that keeps them open delays nothing.
"""

from __future__ import annotations

import base64
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import IO, Any

_PR_SET_DUMPABLE = 4
_MOST = 32 << 20  # bytes of standard output, and of standard error, that an answer holds at most


class _Commands:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._running: dict[int, subprocess.Popen[bytes]] = {}
        self._killed: set[int] = set()

    def serve(self) -> None:
        """Run what comes until standard input is closed."""
        for line in sys.stdin.buffer:
            asked = json.loads(line)
            if "kill" in asked:
                self._kill(asked["kill"])
            else:
                threading.Thread(target=self._answer, args=(asked,), daemon=True).start()

    def _kill(self, number: int) -> None:
        with self._lock:
            self._killed.add(number)
            if (process := self._running.get(number)) is not None:
                os.killpg(process.pid, signal.SIGKILL)

    def _answer(self, asked: dict[str, Any]) -> None:
        try:
            answer = self._ran(asked)
        except (OSError, ValueError) as error:  # such as: no such folder, or the disk of the session is full
            answer = {"error": str(error)}
        with self._lock:
            sys.stdout.buffer.write(json.dumps({"id": asked["id"], **answer}).encode() + b"\n")
            sys.stdout.buffer.flush()

    def _ran(self, asked: dict[str, Any]) -> dict[str, Any]:
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors:
            given.write(base64.b64decode(asked["stdin"]))
            given.seek(0)
            with self._lock:
                process = subprocess.Popen(
                    ("bash", "-c", asked["command"]),
                    cwd=asked["cwd"],
                    env={**os.environ, **asked["env"]},
                    stdin=given,
                    stdout=output,
                    stderr=errors,
                    start_new_session=True,
                )
                self._running[asked["id"]] = process
                if asked["id"] in self._killed:
                    process.kill()
            code = process.wait()
            with self._lock:
                del self._running[asked["id"]]
            return {"code": code if code >= 0 else 128 - code, "stdout": _text(output), "stderr": _text(errors)}


def _text(file: IO[bytes]) -> str:
    file.seek(0)
    return base64.b64encode(file.read(_MOST)).decode()


if __name__ == "__main__":
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0)  # commands have the same user, and must not write on the descriptors of this process
    _Commands().serve()
