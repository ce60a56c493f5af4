"""Where the roles run. ``run`` takes a plan and returns what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.runtime.progress import Progress, Summary

if TYPE_CHECKING:
    from rlcore.config import Plan

__all__ = ["Progress", "Summary", "run"]


def run(plan: Plan, progress: Progress | None = None) -> Summary:
    """Train as planned, on the runtime that the plan names."""
    from rlcore.runtime.resumption import check_model_files
    from rlcore.runtime.training_run import TrainingRun

    check_model_files(plan)
    return TrainingRun(plan, progress or Progress()).run()
