"""Run folders that are typed as a glob, which finds other files too."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rlcore.host.terminal_text import escape_control
from rlcore.runlog.past_runs import past_runs

__all__ = ["runs_among"]


def runs_among(paths: Sequence[Path], least: int = 1) -> list[Path]:
    """The run folders, and folders of runs, among them; what is left out is said on standard error. All of them if fewer than ``least``
    are one: whoever opens them says what is wrong."""
    runs = [path for path in paths if (path / "run.toml").is_file() or (path.is_dir() and past_runs(path))]
    if not least <= len(runs) < len(paths):
        return list(paths)
    others = ", ".join(str(path) for path in paths if path not in runs)
    print(f"left out, for they are no run folders: {escape_control(others)}", file=sys.stderr)
    return runs
