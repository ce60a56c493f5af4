"""Trainer ranks as processes: a function that fresh interpreters call, and the values that they return."""

from __future__ import annotations

import faulthandler
import os
import pickle
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from rlcore.contracts.errors import RlcoreError, RunError
from rlcore.registry.targets import load_target
from rlcore.testing.training.star_ranks import StarRanks

__all__ = ["free_rendezvous", "next_rendezvous", "run_ranks"]

PROGRAM = "import sys; from rlcore.testing.training.rank_processes import answer; answer(*sys.argv[1:])"
"""The program of those interpreters, with the files of its call and of its answer."""
_AFTER_AN_ERROR = 5.0
"""Seconds that the other ranks have, once one has failed, to fail for reasons of their own."""
_QUIET = {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def run_ranks(function: str, size: int, *arguments: Any, timeout: float = 120.0) -> list[Any]:
    """Call ``module:name`` as ``name(rank, size, rendezvous, *arguments)`` in ``size`` processes; return their answers, by rank.

    The module must be importable by name from ``sys.path`` as it is now; arguments and answers are pickled. An rlcore error that the
    function raises is its answer. Ranks that still wait for that rank a few seconds later are ended, and their answer is a RunError. Each
    process computes with one thread. Raise RunError, with the end of a process's output, if one fails in another way or not all are done
    after ``timeout`` seconds; none is left running.
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
                command = [sys.executable, "-c", PROGRAM, str(call), str(answer)]
                with said.open("wb") as stream:
                    processes.append(subprocess.Popen(command, env=environment, stdout=stream, stderr=subprocess.STDOUT))
            codes = _wait(processes, [folder / f"answer-{rank}" for rank in range(size)], timeout)
        finally:
            for process in processes:  # all before the first is waited for: one that saw another die would answer with an error
                process.kill()
            for process in processes:
                process.wait()
        answers = [_read(folder / f"answer-{rank}") for rank in range(size)]
        failed = next((rank for rank, answer in enumerate(answers) if isinstance(answer, RlcoreError)), None)
        for rank in sorted((rank for rank, code in enumerate(codes) if code != 0), key=lambda rank: codes[rank] is None):
            if codes[rank] is None and failed is not None:
                if not (folder / f"answer-{rank}").exists():  # else it had only not ended yet
                    answers[rank] = RunError(f"rank {rank} of {size} was ended, for it still waited after rank {failed} had failed")
                continue
            tail = (folder / f"said-{rank}").read_text(encoding="utf-8", errors="replace")[-2000:]
            how = f"gave no answer to {function} within {timeout:g} s"
            if codes[rank] is not None:
                how = f"ended with exit code {codes[rank]} and gave no answer to {function}"
            raise RunError(f"rank {rank} of {size} {how}: {tail}")
        return answers


def free_rendezvous() -> str:
    """Return ``tcp://127.0.0.1:port`` with a port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"tcp://127.0.0.1:{probe.getsockname()[1]}"


def next_rendezvous(ranks: StarRanks) -> str:
    """Return ``free_rendezvous`` of rank 0, on every rank, for a function that meets again: a port that was free at its start may be taken
    by now."""
    own = free_rendezvous() if ranks.rank == 0 else ""
    return ranks.gather(np.frombuffer(own.encode(), np.uint8))[0].tobytes().decode()


def _wait(processes: Sequence[subprocess.Popen[bytes]], answers: Sequence[Path], timeout: float) -> list[int | None]:
    """Wait until all have ended, one has failed, or the time is over, which is short once one has answered with an error. Return exit codes
    by rank, None for one that still runs."""
    until = time.monotonic() + timeout
    ended: set[int] = set()
    while True:
        codes = [process.poll() for process in processes]
        if None not in codes or any(codes) or time.monotonic() > until:
            return codes
        new = {rank for rank, code in enumerate(codes) if code is not None} - ended
        ended |= new
        if any(isinstance(_read(answers[rank]), RlcoreError) for rank in new):
            until = min(until, time.monotonic() + _AFTER_AN_ERROR)
        time.sleep(0.02)


def _read(answer: Path) -> Any:
    return pickle.loads(answer.read_bytes()) if answer.exists() else None


def answer(call: str, to: str) -> None:
    """Make the call of the first file; the second file appears when it is whole."""
    faulthandler.enable()
    function, arguments = pickle.loads(Path(call).read_bytes())
    try:
        result = load_target(function, f"the function {function!r} of a rank")(*arguments)
    except RlcoreError as error:
        result = error
    partial = Path(to).with_suffix(".partial")
    partial.write_bytes(pickle.dumps(result))
    partial.replace(to)
