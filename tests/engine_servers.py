"""Real servers of engines on loopback, by the interpreters of environments that have them. Starting one takes half a minute, so tests lend
them to each other; each begins with an update, after which a server knows nothing of the test before."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from rlcore_plugin_workers.environments import interpreter, link_own_packages

_START = 300.0
_SETTINGS = {
    "VLLM_SERVER_DEV_MODE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256",
    "OMP_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
}


def free_port() -> int:
    """A port that nobody uses now."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class EngineServer:
    """One server; ``start`` and ``kill`` as often as a test likes, on the same port."""

    def __init__(self, port: int, command: list[str], variables: dict[str, str], log: Path) -> None:
        self.log, self.address = log, f"http://127.0.0.1:{port}"
        self._process: subprocess.Popen[bytes] | None = None
        self._command, self._variables = command, {**os.environ, **variables}

    def start(self) -> None:
        """Start it; it is not there before ``wait``."""
        with self.log.open("ab") as file:
            self._process = subprocess.Popen(
                self._command, env=self._variables, stdout=file, stderr=subprocess.STDOUT, start_new_session=True
            )

    def wait(self) -> None:
        """Until it answers; AssertionError with the end of its log if it does not come."""
        until = time.monotonic() + _START
        while time.monotonic() < until and self._process is not None and self._process.poll() is None:
            try:
                with urlopen(f"{self.address}/health", timeout=5):
                    return
            except (URLError, OSError):
                time.sleep(0.25)
        raise AssertionError(f"the server did not start: {self.log.read_text(errors='replace')[-3000:]}")

    def kill(self) -> None:
        """SIGKILL, to it and its workers."""
        if self._process is not None:
            with suppress(ProcessLookupError):  # it ended by itself
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
            self._process = None

    @property
    def runs(self) -> bool:
        """Whether it was started, and not killed since."""
        return self._process is not None


def vllm_server(
    environment: Path, model: Path, log: Path, *, words: tuple[str, ...] = (), settings: dict[str, str] | None = None
) -> EngineServer:
    """A server of vLLM. ``settings``: environment variables beside the usual ones; ``words``: of the command line, after the usual ones."""
    port = free_port()
    # The environment of the CPU wheel has no distribution of the name vllm, which the command `vllm` asks for: its module is the same.
    command = [
        *(f"{environment}/bin/python", "-m", "vllm.entrypoints.openai.api_server"),
        *("--model", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--enforce-eager", "--skip-tokenizer-init", "--enable-scale-out"),
        *("--max-model-len", "384", "--max-num-seqs", "64", "--kv-cache-memory-bytes", str(64 << 20)),
        *("--logprobs-mode", "processed_logprobs", "--no-enable-chunked-prefill", "--disable-uvicorn-access-log"),
        *words,
    ]
    return EngineServer(port, command, {**_SETTINGS, **(settings or {})}, log)


def sglang_server(environment: Path, model: Path, log: Path, packages: Path, *, words: tuple[str, ...] = ()) -> EngineServer:
    """A server of SGLang, on the CPU. ``packages``: an empty folder, for links to rlcore and its plugins."""
    port = free_port()
    link_own_packages(packages)
    python, variables = interpreter(environment, packages)
    command = [
        *(python, "-m", "rlcore_plugin_sglang.cpu_server", "--model-path", str(model), "--host", "127.0.0.1", "--port", str(port)),
        *("--dtype", "float32", "--context-length", "400", "--max-running-requests", "64", "--max-total-tokens", "20000"),
        *("--skip-tokenizer-init", "--enable-deterministic-inference", "--sampling-mask-max-tokens", "4096", "--log-level", "warning"),
        *words,
    ]
    variables |= {"SGLANG_ALLOW_OVERWRITE_LONGER_CONTEXT_LEN": "1", "SGLANG_SANITIZE_NAN_LOGITS": "0", "OMP_NUM_THREADS": "1"}
    return EngineServer(port, command, variables, log)


class ServerShelf:
    """Servers that ``make`` starts by number: ``take`` one that nobody has, started if there is none; ``give`` it back."""

    def __init__(self, make: Callable[[int], EngineServer]) -> None:
        self._make = make
        self._idle: list[EngineServer] = []
        self.made: list[EngineServer] = []

    def take(self) -> EngineServer:
        """It answers."""
        if self._idle:
            return self._idle.pop()
        server = self._make(len(self.made))
        self.made.append(server)
        server.start()
        server.wait()
        return server

    def give(self, server: EngineServer) -> None:
        """Nobody uses it any more."""
        self._idle.append(server)

    def close(self) -> None:
        """End all."""
        for server in self.made:
            server.kill()
