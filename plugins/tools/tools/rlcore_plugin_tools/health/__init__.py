"""An observer that warns the user if a run goes wrong, in a sentence that says what to try, and that draws who did what when
(``trace.json``). Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlcore.api import hookimpl

if TYPE_CHECKING:
    from pathlib import Path

    from rlcore.api import RunInfo
    from rlcore_plugin_tools.health.watch import HealthMonitor

rlcore_api = "2.0"

_watches: list[HealthMonitor] = []
"""The watch of the run that this process performs now: the last one that was started."""


@hookimpl
def rlcore_run_started(run: RunInfo) -> None:
    """Watch this run from now on, and drop the watch of an earlier run in this process."""
    from rlcore_plugin_tools.health.watch import HealthMonitor

    _watches[:] = [HealthMonitor(run.config)]


@hookimpl
def rlcore_run_timed(folder: Path, rows: Sequence[tuple[str, str, str, float, float]]) -> None:
    """Write ``trace.json`` into the run folder."""
    from rlcore_plugin_tools.health.trace import write_trace

    write_trace(folder / "trace.json", rows)


@hookimpl
def rlcore_note_step(step: int, metrics: Mapping[str, float]) -> Sequence[str]:
    """Return sentences about problems that are new since this update."""
    from rlcore_plugin_tools.health.first_update import unread_answers

    unread = unread_answers(metrics) if step == 1 and _watches else ""
    return [*filter(None, [unread]), *(sentence for watch in _watches for sentence in watch.step(metrics))]
