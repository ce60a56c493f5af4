"""rlcore and TRL's GRPOTrainer on the same work, as in `make bench-peers`, on the device and without an engine for serving."""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.gpu.setting import Outcome, Setting
from benchmarks.peers.on_device import RLCORE, compare, device_folder, summary

__all__ = ["LONGEST", "missing", "side_by_side"]

LONGEST = 150
"""Seconds after which one run is given up: some compile for minutes, or wait for what does not come."""
SPARE = 15
"""Seconds that are left for the results when the part would be ended."""
_REQUIRED = ("trl", "datasets", "accelerate")


def missing() -> list[str]:
    """Packages that this comparison needs and this interpreter lacks."""
    return [name for name in _REQUIRED if find_spec(name) is None]


def side_by_side(setting: Setting, name: str) -> Outcome:
    """Every way of both sides; ``failed`` where a side has none that works, ``not run`` where TRL is absent."""
    if absent := missing():
        return Outcome(said=f"not run: {', '.join(absent)} not installed", status="not run")
    folder = device_folder(setting.scratch / "peers", name, setting.device, tiny=setting.tiny)

    def report(tried: dict[str, dict[str, Any]]) -> None:
        setting.report(_outcome(tried))

    return _outcome(compare(folder, name, "transformers", Path(sys.executable), LONGEST, setting.until - SPARE, report))


def _outcome(tried: dict[str, dict[str, Any]]) -> Outcome:
    """A row for each way that works, rlcore's first; all of them among the figures, with the reasons of those that do not."""
    works, said = summary(tried)
    rows = sorted((row for row in tried.values() if "error" not in row), key=lambda row: (row["who"] != RLCORE, row["step_seconds"]))
    return Outcome(said=said, figures=dict(tried), rows=rows, status="done" if works else "failed")
