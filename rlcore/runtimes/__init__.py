"""Where the roles run. ``run`` takes a plan and returns what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.runtimes.progress import Progress, Silent
from rlcore.runtimes.summary import Summary

if TYPE_CHECKING:
    from rlcore.config import Plan

__all__ = ["Progress", "Silent", "Summary", "run"]


def run(plan: Plan, progress: Progress | None = None) -> Summary:
    """Train as planned, in this process or as actors on Ray."""
    from rlcore.runtimes.local import LocalCrew
    from rlcore.runtimes.training_run import CrewBuilder, Run

    build: CrewBuilder = LocalCrew
    if plan.config.run.runtime == "ray":
        from rlcore.runtimes.cluster.crew import RayCrew

        build = RayCrew
    return Run(plan, progress or Silent(), build).run()
