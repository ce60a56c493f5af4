"""A Ray cluster for one run, held by a process of its own. Imports no Ray before that process does.

That process is alone in a process group, together with what Ray starts: signals that a terminal, ``timeout`` or a supervisor sends to the
group of the driver reach the driver only. It ends Ray as soon as its standard input ends, so also if the driver is killed.
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
"""How long Ray may take to end its processes; then the process that holds them is killed, and Ray's reaper kills them."""


@contextmanager
def own_cluster(folder: Path | None) -> Iterator[tuple[str, str | None]]:
    """Start a cluster with its files in ``folder``; give its address, and the RAY_AUTH_MODE that whoever joins it needs."""
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
    """Return the error of a cluster that does not start here."""
    return ConfigError(f"no Ray cluster can be started here: {why}; --ray-dir names another folder for its files")


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
    """Be the process that holds a cluster: start Ray, tell its address in one line, end Ray once standard input ends."""
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
    """Return the first line of its message, or the name of its class if it has none."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
