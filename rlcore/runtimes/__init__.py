"""Where the roles run. ``run`` takes a plan and returns what came of it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rlcore.errors import ConfigError
from rlcore.runtimes.progress import Progress, Silent
from rlcore.runtimes.summary import Summary

if TYPE_CHECKING:
    from rlcore.config import Plan

__all__ = ["Progress", "Silent", "Summary", "run"]


def run(plan: Plan, progress: Progress | None = None) -> Summary:
    """Train as planned. Raises ConfigError for a runtime that this release does not have."""
    if plan.config.run.runtime != "local":
        raise ConfigError(f"runtime {plan.config.run.runtime!r} is not in this release; use --runtime local, -t 1 and -i 1")
    from rlcore.runtimes.local import LocalRun

    return LocalRun(plan, progress or Silent()).run()
