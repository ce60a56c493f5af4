"""A Ray cluster for one run, held by a separate process. In this module only that process imports Ray.

The process and the processes that Ray starts are alone in a process group. So signals that a terminal, ``timeout`` or a supervisor sends to
the driver's group reach only the driver. The process ends Ray when its standard input ends, so also if the driver is killed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from rlcore.api import ConfigError

__all__ = ["first_line", "hold", "not_started", "own_cluster"]

_HOLD = "from rlcore_plugin_ray.own_cluster import hold; hold()"
_END_SECONDS = 60.0
"""How long Ray may take to end its processes. After that the process that holds them is killed, and Ray's reaper kills them."""


@contextmanager
def own_cluster(folder: Path | None) -> Iterator[tuple[str, str | None]]:
    """Start a cluster with its files in ``folder``; yield its address, and the RAY_AUTH_MODE that is needed to join it."""
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _HOLD, str(folder or "")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            process_group=0,
        )
        try:
            yield _answer(process, said)
        finally:
            _end(process)


def _answer(process: subprocess.Popen[str], said: IO[str]) -> tuple[str, str | None]:
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line:
        said.seek(0)
        words = said.read().strip().splitlines() or ["its process ended"]
        answer: dict[str, Any] = {"error": words[-1]}
    else:
        answer = json.loads(line)
    if "error" in answer:
        raise not_started(answer["error"])
    return answer["address"], answer["mode"]


def not_started(why: str) -> ConfigError:
    """Return the error for a cluster that does not start here."""
    return ConfigError(f"a Ray cluster cannot be started here: {why}; to use another folder for its files, type --ray-dir")


def _end(process: subprocess.Popen[str]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.close()
        process.wait(_END_SECONDS)
    except subprocess.TimeoutExpired:
        pass
    finally:  # also at a second Ctrl-C
        process.kill()
        process.wait()
        process.stdout.close()


def hold() -> None:
    """Hold a cluster: start Ray, write its address as one line, and end Ray when standard input ends."""
    with os.fdopen(os.dup(1), "w") as answers:
        os.dup2(2, 1)  # Ray reports dead workers on standard output
        json.dump(_start(sys.argv[1]), answers)
        answers.write("\n")
    sys.stdin.read()
    import ray

    ray.shutdown()


def _start(folder: str) -> dict[str, Any]:
    import ray

    options = {"_temp_dir": folder} if folder else {}
    try:
        ray.init(address="local", log_to_driver=False, logging_level="error", **options)
    except (ConnectionError, OSError, RuntimeError, ValueError) as error:
        return {"error": first_line(error)}
    return {"address": ray.get_runtime_context().gcs_address, "mode": os.environ.get("RAY_AUTH_MODE")}


def first_line(error: Exception) -> str:
    """Return the first line of the error's message, or the name of its class if the message is empty."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
