"""The runtime of a run: ``run`` takes a plan, trains, and returns a summary."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.runtime.progress import Progress, Summary

if TYPE_CHECKING:
    from rlcore.config import Plan

__all__ = ["Progress", "Summary", "run"]


def run(plan: Plan, progress: Progress | None = None) -> Summary:
    """Train as planned, on the runtime that the plan names."""
    from rlcore.runtime.recovery import run_with_restores
    from rlcore.runtime.resumption import check_model_files

    check_model_files(plan)
    return run_with_restores(plan, progress or Progress())
