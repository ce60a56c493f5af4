"""The producer's end of a frozen player's engine: a process of its own, started anew if it dies or stops.

The producer owns the socket at which the engine listens. So the address stays the same, and whoever asks while there is no process waits
for the next one. A model that changes on the disk between two processes ends the run.
"""

from __future__ import annotations

import json
import os
import secrets
import select
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rlcore.api import PluginError, RlcoreError, RunError
from rlcore_gateway import guard
from rlcore_gateway.frozen_model import FrozenModel
from rlcore_gateway.link import ProcessTail
from rlcore_gateway.players import PlayerSetup
from rlcore_gateway.process_tree import MARK, kill_tree, new_mark

__all__ = ["FrozenEngine"]

_BOOT = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rlcore_gateway.frozen_process import main; main(sys.argv[2])"
_LEAVE_SECONDS = 15.0
_WAITS = 8


class FrozenEngine:
    """Owns the process of a frozen player. ``start`` and ``close`` are called once each.

    :param say: shows a warning to the user.
    :param failed: called with the error that must end the run.
    :param restarts: how many times in a row the process may be started anew without having answered anything.
    :param silence: seconds without a sign of life after which the process counts as hanging.
    :param start_seconds: the same while it loads its model.
    """

    def __init__(
        self,
        model: FrozenModel,
        say: Callable[[str], None],
        failed: Callable[[RlcoreError], None],
        *,
        restarts: int = 3,
        silence: float = 60.0,
        start_seconds: float = 1800.0,
    ) -> None:
        self._model, self._say, self._failed = model, say, failed
        self._restarts, self._silence, self._start_seconds = restarts, silence, start_seconds
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self._secret = secrets.token_urlsafe(24)
        self._woken, self._wake = os.pipe()
        self._thread = threading.Thread(target=self._run, name="rlcore-frozen", daemon=True)
        self._closing = False
        self._ready: dict[str, Any] | None = None
        """What the first process said about its model, None before that."""
        self._answered = 0
        self.process: subprocess.Popen[bytes] | None = None
        """The process that guards the engine, None before the first one is started."""

    @property
    def player(self) -> PlayerSetup:
        """The player that it serves."""
        address = f"http://127.0.0.1:{self._listening.getsockname()[1]}/v1"
        return PlayerSetup(name=self._model.name, base_url=address, model=self._model.name, api_key=self._secret, frozen=True)

    def start(self) -> None:
        """Start the process, without waiting for it."""
        self._thread.start()

    def close(self) -> None:
        """End the process and all processes below it, and wait until they have ended."""
        self._closing = True
        os.write(self._wake, b"x")
        if self._thread.ident is not None:
            self._thread.join()
        self._listening.close()
        os.close(self._wake)
        os.close(self._woken)

    def _run(self) -> None:
        """Keep a process alive until the engine is closed, or until it died too often."""
        who, deaths = f"the engine of player {self._model.name}", 0
        while not self._closing:
            self._answered = 0
            try:
                why = self._one_process()
            except RlcoreError as error:
                self._failed(error)
                return
            deaths = 1 if self._answered else deaths + 1
            if self._closing:
                return
            if self._ready is None or deaths > self._restarts:
                again = f"; that was {deaths} times without an answer" if deaths > 1 else ""
                self._failed(RunError(f"{who} {why}{again}"))
                return
            self._say(f"{who} {why}; it is started anew, and the episodes that asked it begin again")

    def _one_process(self) -> str:
        """Start a process and watch it until it dies or hangs. Return, in words, what happened to it."""
        reading, lifeline = os.pipe()
        listening = self._listening.fileno()
        boot = [sys.executable, "-P", "-c", _BOOT, json.dumps(sys.path), str(listening)]
        mark = new_mark()
        process = self.process = subprocess.Popen(
            [sys.executable, "-P", str(Path(guard.__file__)), str(reading), str(os.getpid()), str(listening), *boot],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[reading, listening],
            env={**os.environ, MARK: mark},
            start_new_session=True,
        )
        os.close(reading)
        tail = ProcessTail(process)
        assert process.stdin is not None
        try:
            with process.stdin as stream:
                stream.write(json.dumps({"secret": self._secret, "model": asdict(self._model)}).encode() + b"\n")
            why = self._watched(process)
        except BrokenPipeError:
            why = ""
        finally:
            os.close(lifeline)
            _end(process, mark)
        return why or tail.ending()

    def _watched(self, process: subprocess.Popen[bytes]) -> str:
        """Read lines until the process is gone (return "") or silent (return that in words).

        Silence is measured in short waits, as ``GatewayLink`` does.
        """
        assert process.stdout is not None
        kept, patience, quiet, wait = b"", self._start_seconds, 0.0, self._silence / _WAITS
        with process.stdout as stream:
            while quiet < patience:
                ready, _, _ = select.select([stream.fileno(), self._woken], [], [], wait)
                if self._closing:
                    return ""
                quiet = 0.0 if ready else quiet + wait
                if not ready:
                    continue
                if not (data := os.read(stream.fileno(), 1 << 16)):
                    return ""
                *lines, kept = (kept + data).split(b"\n")
                for line in lines:
                    patience = self._silence
                    self._heard(json.loads(line))
        return f"gave no sign of life for {patience:g} s"

    def _heard(self, line: Mapping[str, Any]) -> None:
        """Handle a line. Raises RlcoreError if it ends the run."""
        who = f"sampling.options.players.{self._model.name}"
        if "refused" in line:
            raise PluginError(f"{who}: {line['refused']}")
        if "files" in line:
            if self._ready is not None and line != self._ready:
                raise RunError(f"{who}: the files of {self._model.model} have changed during the run, so its player would not be the same")
            self._ready = dict(line)
        self._answered = line.get("answered", self._answered)


def _end(process: subprocess.Popen[bytes], mark: str) -> None:
    """Wait for a guard, whose lifeline is closed."""
    try:
        process.wait(_LEAVE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid, mark)  # the guard is stopped, and ends nothing
        process.wait(_LEAVE_SECONDS)
