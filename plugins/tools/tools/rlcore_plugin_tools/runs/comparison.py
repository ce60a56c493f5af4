"""A comparison of runs as plain data: their states, their settings and software, and their figures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api import UsageError
from rlcore.api.settings import closest
from rlcore_plugin_tools.runs.evaluation_record import EvaluationRecord
from rlcore_plugin_tools.runs.figures_compared import ComparedFigure, evaluations_compared, figures_compared
from rlcore_plugin_tools.runs.origins_compared import (
    Difference,
    data_differences,
    plugin_differences,
    setting_differences,
    version_differences,
)
from rlcore_plugin_tools.runs.run_list import named_run
from rlcore_plugin_tools.runs.seed_groups import ComparedRun, SeedGroup, seed_groups

__all__ = ["Comparison", "compare"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Differences have one value per group. Figures have one per group, and a difference for each group except the first."""

    groups: tuple[SeedGroup, ...]
    settings: tuple[Difference, ...]
    versions: tuple[Difference, ...]
    plugins: tuple[Difference, ...]
    data: tuple[Difference, ...]
    evaluations: tuple[ComparedFigure, ...]
    figures: tuple[ComparedFigure, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        parts = ("settings", "versions", "plugins", "data", "evaluations", "figures")
        told = {name: [item.as_json() for item in getattr(self, name)] for name in parts}
        return {"groups": [{"label": group.label, "runs": [_run_json(run) for run in group.runs]} for group in self.groups], **told}


def compare(folders: Sequence[Path], metrics: Sequence[str] = ()) -> Comparison:
    """Read runs, and files of ``rlcore eval``, and compare them. UsageError if a path is neither, if one is named twice, or if no run has a
    metric."""
    records = [EvaluationRecord(path) if path.is_file() else named_run(path) for path in folders]
    roots = [record.root.resolve() for record in records]
    if len(set(roots)) < len(roots):
        twice = next(root for root in roots if roots.count(root) > 1)
        raise UsageError(f"rlcore compare: {twice} is named twice; name different runs")
    runs = [ComparedRun(record) for record in records]
    _check_metrics(runs, metrics)
    groups = tuple(seed_groups(runs))
    return Comparison(
        groups=groups,
        settings=tuple(setting_differences(groups)),
        versions=tuple(version_differences(groups)),
        plugins=tuple(plugin_differences(groups)),
        data=tuple(data_differences(groups)),
        evaluations=tuple(evaluations_compared(groups, metrics)),
        figures=tuple(figures_compared(groups, metrics)),
    )


def _check_metrics(runs: Sequence[ComparedRun], metrics: Sequence[str]) -> None:
    known = {name for run in runs for row in (*run.updates, *run.evaluations) for name in row} - {"step"}
    for name in metrics:
        if name not in known:
            raise UsageError(f"rlcore compare: none of the runs has the metric {name}{closest(name, known)}")


def _run_json(run: ComparedRun) -> dict[str, Any]:
    return {
        "run": str(run.record.root),
        "state": run.state,
        "step": run.step,
        "planned": run.record.planned_steps,
        "seed": run.seed,
        "seconds": round(run.seconds, 3),
    }
