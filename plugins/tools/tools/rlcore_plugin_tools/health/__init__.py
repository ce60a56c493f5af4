"""An observer that tells the user of a run that goes wrong, in a sentence that says what to try. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rlcore.api import hookimpl

if TYPE_CHECKING:
    from rlcore.api import RunInfo
    from rlcore_plugin_tools.health.watch import HealthMonitor

rlcore_api = "2.0"

_watches: list[HealthMonitor] = []
"""Of the run that this process makes now: the last one that was started."""


@hookimpl
def rlcore_run_started(run: RunInfo) -> None:
    """HealthMonitor it from here on; what an earlier run in this process did is forgotten."""
    from rlcore_plugin_tools.health.watch import HealthMonitor

    _watches[:] = [HealthMonitor(run.config)]


@hookimpl
def rlcore_note_step(step: int, metrics: Mapping[str, float]) -> Sequence[str]:
    """What goes wrong since this update."""
    return [sentence for watch in _watches for sentence in watch.step(metrics)]
