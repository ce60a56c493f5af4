"""The content of the page: ``figures`` (small and quick to read) and ``rollouts``, both plain data."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlcore.api import UsageError
from rlcore.api.runs import metric_of, past_runs
from rlcore_plugin_tools.report.rollout_reading import RolloutReading
from rlcore_plugin_tools.report.rollout_table import RolloutTable
from rlcore_plugin_tools.report.run_figures import run_figures
from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.settings_compared import differing_settings, groups_by_seed

__all__ = ["Bounds", "ReportContent", "run_folder"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """``rollouts``: the most rollouts in the page, of all runs together; ``characters``: the most characters of one text."""

    rollouts: int
    characters: int


def run_folder(root: Path) -> Path:
    """Return ``root`` if it is a run folder, or the newest run of a project; otherwise raise UsageError, which says what to type."""
    if (root / "run.toml").is_file():
        return root
    if root.is_dir() and (runs := past_runs(root)):
        return runs[0].root
    what = "is not a run folder, since it has no run.toml" if root.exists() else "is not there"
    raise UsageError(f"{root} {what}; type the folder that rlcore train printed, or that of a project")


class ReportContent:
    """The content of some run folders. Each call reads again the files that have changed. Calls are thread-safe."""

    def __init__(self, roots: Sequence[Path], bounds: Bounds) -> None:
        """Open the runs. Raises UsageError if one of ``roots`` is neither a run folder nor a project, and ConfigError if its ``run.toml``
        cannot be read."""
        self._roots, self._bounds = [run_folder(root) for root in roots], bounds
        self._readings = [RolloutReading(RunRecord(root), bounds.characters) for root in self._roots]
        self._lock = threading.Lock()

    def figures(self) -> dict[str, Any]:
        """Return everything except the rollouts."""
        runs = [run_figures(RunRecord(root)) for root in self._roots]  # a resumed run has another run.toml
        configs = [run["config"] for run in runs]
        names = dict.fromkeys(name for run in runs for name in (*run["series"], *(key for row in run["evaluations"] for key in row)))
        return {
            "rlcore": version("rlcore"),
            "runs": runs,
            "groups": groups_by_seed(configs),
            "differences": differing_settings(configs),
            "metrics": {name: {"unit": metric.unit, "text": metric.text} for name in names if (metric := metric_of(name)) is not None},
        }

    def rollouts(self) -> dict[str, Any]:
        """Return the sample, in the form of ``RolloutTable.plain()``. ``told`` adds, for each run, the result of
        ``RolloutReading.read``."""
        table, problems = RolloutTable(), list[str]()
        share = self._bounds.rollouts // len(self._readings)
        with self._lock:
            told = [reading.read(run, table, share, problems) for run, reading in enumerate(self._readings)]
        return {**table.plain(), "told": told, "problems": problems, "characters": self._bounds.characters}
