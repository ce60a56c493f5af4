"""For authors of displays: what a run tells while it goes on, and how the core words its figures.

A plugin offers a display by the hook ``rlcore_open_display(console)``, which returns a context manager. Inside, its value, a ``Progress``,
receives what the run tells; the run's processes have ended when the context is left, and an error of the run passes through it. The
hook returns None for a console on which the display can show nothing: the next plugin is asked, and if none shows anything, the run
prints lines. A display that raises is reported once, and lines take its place; it cannot end a run.

``UpdatePace`` computes tokens a second and the time left; ``format_duration`` and ``format_metric`` write a duration and a metric.
``evaluation_line`` is the sentence for the reports of an evaluation, ``mean_accuracy`` their mean.
"""

from __future__ import annotations

from rlcore.cli.line_display import evaluation_line, mean_accuracy
from rlcore.cli.throughput import UpdatePace, format_duration, format_metric
from rlcore.contracts.runtime_interface import TaskReport
from rlcore.runtime.progress import Progress

__all__ = ["Progress", "TaskReport", "UpdatePace", "evaluation_line", "format_duration", "format_metric", "mean_accuracy"]
