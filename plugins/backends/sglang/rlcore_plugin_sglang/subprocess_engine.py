"""The engine for ``ServingBackend``: a separate process, whose main program is ``engine_process``."""

from __future__ import annotations

import os
import queue
import socket
import struct
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from rlcore_plugin_serving.incoming_weights import IncomingWeights
from rlcore_plugin_serving.partial_completions import OTHER_STOP, NewTokens
from rlcore_plugin_serving.resumed_requests import ResumedRequests
from rlcore_plugin_serving.serving_engine import EngineRequest, ServingEngine
from safetensors.torch import save_file

from rlcore.api import ConfigError, RunError, WeightsError

__all__ = ["SubprocessEngine", "bound_sending"]

_LOOK = 0.2
"""Seconds between two checks of a process that the caller waits for."""
_CLOSING = 30.0
"""Seconds that the engine may take to end by itself."""
_MEMORY = Path("/dev/shm")
_VARIABLES = {
    "SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1",  # the run sets how long a sequence may be
    "SGLANG_RETURN_ORIGINAL_LOGPROB": "0",  # log probabilities of the sampled distribution
    "TQDM_DISABLE": "1",
    "PYTHONWARNINGS": "ignore:resource_tracker",  # it removes what SGLang's processes leave behind, and warns about it
    "SGLANG_SANITIZE_NAN_LOGITS": "0",  # otherwise a diverged model samples all tokens uniformly, without an error
}


class SubprocessEngine(ServingEngine):
    """Starts the engine's process and sends it commands.

    The engine neither pauses nor keeps requests during an update: each is dropped there, and sent again after the tokens that it has. A
    draw depends on seed and position, so the request draws the same tokens as it would have.
    """

    def __init__(self, arguments: Mapping[str, Any], *, silence: float, start: float) -> None:
        """Start the process. Raises ConfigError for arguments that the engine refuses. ``silence``, ``start``: see SglangOptions."""
        self._silence, self._copies = silence, int(arguments["dp_size"])
        self._news: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[Any, ...]] = queue.SimpleQueue()
        self._asks = ResumedRequests()
        self._parts: list[NewTokens] = []
        self._version, self._paused, self._dead = 0, False, ""
        self._link, theirs = Pipe()
        bound_sending(self._link, silence)
        self._heard = time.monotonic()
        made: queue.SimpleQueue[subprocess.Popen[bytes] | OSError] = queue.SimpleQueue()
        # The kernel ends the engine with the thread that started it, so that thread runs as long as the pipe is open.
        self._thread = threading.Thread(target=self._listen, args=(theirs, made), name="sglang-engine", daemon=True)
        self._thread.start()
        process = made.get()
        if isinstance(process, OSError):
            raise RunError(f"SGLang's engine process cannot be started: {process}") from process
        self._process = process
        self._names: list[str] = []
        self._end = weakref.finalize(self, _end, self._link, self._process, self._names)
        try:
            self._link.send(dict(arguments))
            vocabulary, names = self._answer("the start", start)
        except BaseException:
            self._end()
            raise
        self.vocabulary: int = vocabulary
        self._names += names

    def add(self, asks: Sequence[EngineRequest]) -> None:
        """Send the requests to the engine."""
        self._collect()
        if not len(self._asks):
            self._heard = time.monotonic()
        self._asks.add(asks)
        self._order("add", list(asks))

    def take(self, timeout: float) -> list[NewTokens]:
        """Return the parts that have come. Answers come as a whole, unless they have stop strings."""
        until = time.monotonic() + timeout
        while not (found := self._taken()) and time.monotonic() < until:
            self._require_life()
            with suppress(queue.Empty):
                self._add_news(self._news.get(timeout=max(0.0, min(_LOOK, until - time.monotonic()))))
        return found

    def abort(self, names: Iterable[str]) -> list[NewTokens]:
        """Drop the requests, and wait until the engine has dropped each."""
        names = list(names)
        found = self._asks.drop(names)
        self._order("abort", names)
        return found + self._taken()

    def score(self, token_ids: Sequence[int]) -> np.ndarray:
        """See ServingEngine."""
        return np.array(self._order("score", list(token_ids)), np.float32)

    def pause(self) -> None:
        """Drop all requests; their tokens so far belong to the served version."""
        self._paused = True
        self._order("abort", self._asks.interrupt())
        self._collect()

    def load(self, incoming: IncomingWeights) -> None:
        """Let the engine's process map the host memory; with several copies of the model, each reads a folder in that memory."""
        if self._copies == 1:
            self._order("load", incoming.path, incoming.places())
            return
        with TemporaryDirectory(prefix="rlcore-weights-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            save_file(incoming.whole_apart(), Path(folder) / "model.safetensors")
            self._order("load_folder", folder)

    def load_adapter(self, incoming: IncomingWeights, configuration: Mapping[str, Any]) -> None:
        """Load the adapter. Raises WeightsError if the engine does not take it; the previous one is then served."""
        try:
            self._order("load_adapter", f"version-{incoming.version}", incoming.path, incoming.places(), dict(configuration))
        except RunError as error:
            if self._dead:
                raise
            raise WeightsError(f"version {incoming.version}: {error}") from error

    def leave_adapter_out(self) -> None:
        """Serve the weights without an adapter."""
        self._order("leave_adapter_out")

    def serve(self, version: int) -> None:
        """Serve the version, and send the dropped requests again."""
        self._version, self._paused = version, False
        self._order("add", self._asks.resume())

    def sleep(self, level: int = 1) -> object:
        """Release the device. Nothing is kept at any level: SGLang has only one."""
        return self._order("sleep")

    def wake_up(self, tags: list[str] | None = None) -> object:
        """Take memory back, part by part."""
        return self._order("wake_up", tags or [])

    def end(self) -> None:
        """End the processes."""
        self._end()

    # --- small parts ---------------------------------------------------------------------------------------------------

    def _listen(self, theirs: Connection, made: queue.SimpleQueue[subprocess.Popen[bytes] | OSError]) -> None:
        """Start the process, and put its messages into the queues until it ends; runs in its own thread."""
        command = [sys.executable, "-m", "rlcore_plugin_sglang.engine_process", str(theirs.fileno()), str(os.getpid())]
        variables = {**os.environ, **_VARIABLES, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        try:
            made.put(subprocess.Popen(command, env=variables, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, start_new_session=True))
        except OSError as error:
            made.put(error)
        theirs.close()
        with suppress(EOFError, OSError):
            while True:
                message = self._link.recv()
                self._heard = time.monotonic()
                if message[0] == "tokens":
                    self._news.put(message[1:])
                elif message[0] != "alive":
                    self._answers.put(message)
        self._answers.put(("ended",))

    def _order(self, method: str, *arguments: Any) -> Any:
        self._require_life()
        with suppress(OSError):  # a caller that waits for an answer finds out that the engine has died
            self._link.send((method, arguments))
        return self._answer(method, self._silence)

    def _answer(self, what: str, seconds: float) -> Any:
        """Wait for the answer, at most ``seconds`` after the last message of the engine."""
        since = time.monotonic()
        while True:
            try:
                word, *said = self._answers.get(timeout=_LOOK)
                break
            except queue.Empty:
                if time.monotonic() - max(since, self._heard) > seconds:
                    self._kill(f"SGLang's engine has sent nothing for {seconds:g} s, during {what}")
        if word == "done":
            return said[0]
        if word == "refused":
            raise ConfigError(said[0])
        if word == "failed":
            raise RunError(said[0])
        self._dead = self._death()
        raise RunError(self._dead)

    def _taken(self) -> list[NewTokens]:
        self._collect()
        found, self._parts = self._parts, []
        return found

    def _collect(self) -> None:
        while not self._news.empty():
            self._add_news(self._news.get())

    def _add_news(self, news: tuple[Any, ...]) -> None:
        """Add new tokens of one request.

        An answer that ended at a stop token of the model's folder, which is not one of the tokenizer's, continues.
        """
        name, tokens, logprobs, finish = news
        self._parts += self._asks.hand_on([NewTokens(name, tokens, logprobs, [self._version] * len(tokens), finish)])
        if finish == OTHER_STOP and not self._paused and (left := self._asks.resume([name])):
            self._order("add", left)

    def _require_life(self) -> None:
        if not self._dead and not self._thread.is_alive():
            self._dead = self._death()
        self._collect()  # parts that have come need no wait
        if not self._dead and len(self._asks) and time.monotonic() - self._heard > self._silence:
            self._kill(f"SGLang's engine has produced no token for {self._silence:g} s, with {len(self._asks)} requests in flight")
        if self._dead:
            raise RunError(self._dead)

    def _death(self) -> str:
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSING)
        return f"SGLang's engine process died (exit code {self._process.returncode}); its own log above says more"

    def _kill(self, why: str) -> None:
        self._dead = f"{why}; its processes were ended"
        _kill(self._process)
        raise RunError(self._dead)


def _end(link: Connection, process: subprocess.Popen[bytes], names: Iterable[str]) -> None:
    with suppress(OSError):
        link.send(("end", ()))
    with suppress(subprocess.TimeoutExpired):
        process.wait(_CLOSING)
    _kill(process)
    link.close()
    for name in names:  # SGLang's processes leave their shared memory behind when they are killed
        (_MEMORY / name).unlink(missing_ok=True)


def _kill(process: subprocess.Popen[bytes]) -> None:
    """Kill only this process: the kernel ends those that it started."""
    process.kill()
    process.wait()


def bound_sending(link: Connection, seconds: float) -> None:
    """Let a message to a stopped process, which reads nothing, raise OSError instead of waiting forever."""
    with socket.socket(fileno=os.dup(link.fileno())) as pipe:  # a duplicate of the same file: the option applies to both
        pipe.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds), int(seconds % 1 * 1e6)))
