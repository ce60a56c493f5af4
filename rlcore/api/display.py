"""For authors of displays: the events of a run, and the core's wording of its figures.

A plugin offers a display with the hook ``rlcore_open_display(console)``, which returns a context manager. The value of the context, a
``Progress``, receives the events of the run. When the context is left, the processes of the run have ended. An error of the run passes
through the context.

The hook returns None if the display cannot show anything on this console; the next plugin is then asked. If no plugin returns a display,
the run prints lines. If a display raises, the error is reported once and lines replace the display; it cannot end a run.

``UpdatePace`` computes tokens per second and the time left. ``format_duration``, ``format_metric`` and ``format_work`` format a duration, a
metric, and how much of slow work is done.
``evaluation_line`` is the sentence for the reports of an evaluation, ``mean_accuracy`` their mean.
"""

from __future__ import annotations

from rlcore.cli.line_display import evaluation_line, mean_accuracy
from rlcore.cli.throughput import UpdatePace, format_duration, format_metric, format_work
from rlcore.contracts.runtime_interface import TaskReport
from rlcore.runtime.progress import Progress

__all__ = ["Progress", "TaskReport", "UpdatePace", "evaluation_line", "format_duration", "format_metric", "format_work", "mean_accuracy"]
