"""Select the run folders among paths that were typed as a glob, which also matches other files."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from rlcore.host.terminal_text import escape_control
from rlcore.runlog.past_runs import past_runs

__all__ = ["runs_among"]


def runs_among(paths: Sequence[Path], least: int = 1) -> list[Path]:
    """Return the run folders, and folders of runs, among ``paths``. Reports the others on standard error.

    If fewer than ``least`` of the paths are runs, return all paths; the caller that opens them reports the error."""
    runs = [path for path in paths if (path / "run.toml").is_file() or (path.is_dir() and past_runs(path))]
    if not least <= len(runs) < len(paths):
        return list(paths)
    others = ", ".join(str(path) for path in paths if path not in runs)
    print(f"left out, because they are not run folders: {escape_control(others)}", file=sys.stderr)
    return runs
