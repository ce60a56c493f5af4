"""One run of one side, in a process of its own. Standard library only."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

__all__ = ["RunBroke", "one_run"]

_SIDE = Path(__file__).parent / "trl_side.py"


class RunBroke(SystemExit):
    """A run that ended with an error, or was ended: its command and what it said last. A command that does not catch it ends so."""


def one_run(folder: Path, way: Sequence[str], peer: Path, limit: float | None = None) -> dict[str, Any]:
    """Its figures. ``way``: the side, "trl" (by the Python ``peer``) or "rlcore" (by this one), then its words after FOLDER, the threads
    first. ``limit``: seconds after which it is ended. RunBroke."""
    side, *words = way
    command = [str(peer), str(_SIDE)] if side == "trl" else [sys.executable, "-W", "ignore", "-m", "benchmarks.peers.rlcore_side"]
    card = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")[0]  # one: transformers would split a batch over all that it sees
    environment = {**os.environ, "OMP_NUM_THREADS": words[0], "CUDA_VISIBLE_DEVICES": card, "HF_HUB_OFFLINE": "1"}
    environment["TRL_EXPERIMENTAL_SILENCE"] = "1"
    try:
        done = subprocess.run([*command, str(folder), *words], env=environment, capture_output=True, text=True, check=False, timeout=limit)
    except subprocess.TimeoutExpired as late:
        raise RunBroke(f"took longer than {limit:.0f} s") from late
    if done.returncode:
        raise RunBroke(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures
