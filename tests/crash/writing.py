"""A process that writes what a run writes, as fast as it can, is killed again and again; another one reads meanwhile.

Knows no model and no schedule: only the run folder. ``python -m tests.crash.writing FOLDER ROUNDS SEED`` prints one JSON object.
"""

from __future__ import annotations

import gzip
import json
import os
import random
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from rlcore_plugin_tools.health.trace import write_trace

from rlcore.runlog import RunFolder
from rlcore.runlog.folder import write_json
from rlcore.runlog.rewind import rewind, sizes_of_logs

__all__ = ["LOGS", "main"]

LOGS = ("metrics", "times", "failures", "reward_errors")
_WIDE = {f"figure/{number}": number / 7 for number in range(100)}
_LONG = "é" * 20_000
_MOST = 400_000
"""Bytes that rollouts, and evaluations, may take: a kill may come while one makes room."""


def _write(made: RunFolder, after: int) -> None:
    """Steps after ``after`` without end, a note of the sizes every third, as a checkpoint makes it."""
    for step in count(after + 1):
        made.log("metrics", {"step": step, **_WIDE})
        made.log_times({f"producer-{number}": {"compute": number / 3, "other": 0.5} for number in range(64)}, step)
        made.log_capped("failures", {"step": step, "episode": 0, "prompt_id": "q", "reason": "no verdict" * 50})
        made.log_capped("reward_errors", {"reward": "mine", "text": _LONG})
        made.write_rollouts(step, [{"step": step, "text": "x" * 3000}] * 20, _MOST)
        made.write_evaluation("task", step, [{"step": step, "prediction": "x" * 3000}] * 20, _MOST)
        write_trace(made.root / "trace.json", [("producer-0", "producer", "generation", step + n / 9, 0.1) for n in range(500)])
        if step % 3 == 0:
            write_json(made.root / "noted.json", {"step": step, "sizes": sizes_of_logs(made.root)})


def _child(made: RunFolder, after: int, seconds: float) -> int:
    """Let a process write for so long while its files are read, then kill it; returns how often the last line was met half written."""
    child = os.fork()
    if child == 0:
        try:
            _write(made, after)
        finally:
            os._exit(1)
    until, halves = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        halves += sum(_half_lines(made))
    os.kill(child, signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL, "it ended by itself"
    return halves


def _half_lines(made: RunFolder) -> Iterator[int]:
    """1 for each log whose last line is half there; AssertionError for any other line, or another file, that is not whole."""
    for name in LOGS:
        path = made.root / f"{name}.jsonl"
        *lines, last = path.read_bytes().split(b"\n") if path.exists() else [b""]
        for line in lines:
            _whole(path, line)
        yield int(bool(last))
    for path in (*made.rollouts.glob("*.jsonl.gz"), *made.evaluations.glob("*/*.jsonl"), made.root / "trace.json"):
        try:
            text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        except FileNotFoundError:  # it has made room, or is not there yet
            continue
        assert text.endswith(b"\n"), f"{path} is cut"
        for line in text.splitlines():
            _whole(path, line)


def _whole(path: Path, line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        raise AssertionError(f"{path}: {line[:80]!r} … {line[-80:]!r} is no line") from None


def _put_back(made: RunFolder) -> int:
    """As a run that goes on does; returns the step. Every line is whole then, every step there once."""
    noted = made.root / "noted.json"
    found = json.loads(noted.read_text()) if noted.exists() else {"step": 0, "sizes": {"reward_errors": 0}}
    step: int = found["step"]
    rewind(made, step, found["sizes"])
    assert sum(_half_lines(made)) == 0, "half a line is left"
    for name in LOGS[:3]:
        path = made.root / f"{name}.jsonl"
        lines = path.read_bytes().splitlines() if path.exists() else []
        assert [_whole(path, line)["step"] for line in lines] == list(range(1, step + 1)), f"{path}: another list of steps than 1 to {step}"
    assert not list(made.root.rglob(".*.partial")), "a file that was not renamed is left"
    for folder in (made.rollouts, made.evaluations):
        assert sum(path.stat().st_size for path in folder.rglob("*.jsonl*")) <= _MOST, f"{folder} is over its bound"
    return step


def main(folder: Path, rounds: int, seed: int) -> dict[str, int]:
    """Kill so many processes; returns the steps that were reached, and half lines met by readers and left by kills."""
    made = RunFolder.at(folder, save_dir=None, eval_save_dir=None, rollout_save_dir=None)
    for place in (made.root, made.checkpoints, made.evaluations, made.rollouts):
        place.mkdir(parents=True, exist_ok=True)
    some, step, read, left = random.Random(seed), 0, 0, 0
    for _ in range(rounds):
        read += _child(made, step, some.uniform(0.002, 0.25))
        left += sum(_half_lines(made))
        step = _put_back(made)
    return {"kills": rounds, "steps": step, "half_lines_read": read, "half_lines_left": left}


if __name__ == "__main__":
    print(json.dumps(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))))
