"""Trainer ranks as real processes: a function called in fresh interpreters that meet at one address, and what each of them returned.

``python -m rlcore.testing.rank_processes CALL ANSWER`` is one of those interpreters.
"""

from __future__ import annotations

import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from rlcore.errors import RlcoreError, RunError

__all__ = ["free_rendezvous", "load_target", "run_ranks"]

_QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_ranks(function: str, size: int, *arguments: Any, timeout: float = 120.0) -> list[Any]:
    """``module:name`` called as ``name(rank, size, rendezvous, *arguments)`` in ``size`` processes; their answers, by rank.

    The module must be importable by name from ``sys.path`` as it is now; arguments and answers are pickled. An rlcore error that the
    function raises is its answer. Each process computes with one thread. RunError, with the end of what a process wrote, where one fails
    in another way or all are not done after ``timeout`` seconds; none is left running.
    """
    rendezvous = free_rendezvous()
    environment = {**os.environ, **_QUIET, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with TemporaryDirectory(prefix="rlcore-ranks-") as name:
        folder = Path(name)
        processes = []
        try:
            for rank in range(size):
                call, answer, said = (folder / f"{kind}-{rank}" for kind in ("call", "answer", "said"))
                call.write_bytes(pickle.dumps((function, (rank, size, rendezvous, *arguments))))
                command = [sys.executable, "-m", __name__, str(call), str(answer)]
                with said.open("wb") as stream:
                    processes.append(subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT))
            failed = _wait(processes, timeout)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        if failed is not None:
            tail = (folder / f"said-{failed}").read_text(encoding="utf-8", errors="replace")[-2000:]
            raise RunError(f"rank {failed} of {size} gave no answer to {function} within {timeout:g} s: {tail}")
        return [pickle.loads((folder / f"answer-{rank}").read_bytes()) for rank in range(size)]


def free_rendezvous() -> str:
    """``tcp://127.0.0.1:port`` with a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def load_target(target: str) -> Any:
    """What ``module:name`` stands for."""
    module, _, name = target.partition(":")
    return getattr(import_module(module), name)


def _wait(processes: Sequence[subprocess.Popen[bytes]], timeout: float) -> int | None:
    """Until all have ended well, one has not, or the time is over; the first that failed, or that was not done."""
    until = time.monotonic() + timeout
    while True:
        codes = [process.poll() for process in processes]
        wrong = [rank for rank, code in enumerate(codes) if code not in (None, 0)]
        running = [rank for rank, code in enumerate(codes) if code is None]
        if wrong or not running or time.monotonic() > until:
            return next(iter([*wrong, *running]), None)
        time.sleep(0.02)


def _answer(call: Path, answer: Path) -> None:
    function, arguments = pickle.loads(call.read_bytes())
    try:
        result = load_target(function)(*arguments)
    except RlcoreError as error:
        result = error
    partial = answer.with_suffix(".partial")
    partial.write_bytes(pickle.dumps(result))
    partial.replace(answer)


if __name__ == "__main__":
    _answer(Path(sys.argv[1]), Path(sys.argv[2]))
