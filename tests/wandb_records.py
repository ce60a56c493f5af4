"""What W&B's own reader finds in the folder of a run of W&B's: the program that ``wandb leet inspect`` runs, without the second that the
command takes to begin."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

from wandb.util import get_core_path

__all__ = ["QUICK", "wandb_records"]

QUICK = {"WANDB__SAVE_REQUIREMENTS": "false"}
"""Variables of a process: W&B does not look through all installed packages."""


def wandb_records(run: Path, kind: str) -> list[Any]:
    """The records of one kind, in order."""
    (file,) = run.glob("*.wandb")
    program = [get_core_path(), "leet", "inspect", "--json", "--run-file", str(file), str(run.parent)]
    lines = subprocess.run(program, capture_output=True, text=True, check=True, timeout=60).stdout.splitlines()
    return [record[kind] for record in map(json.loads, lines) if record["type"] == kind]
