"""The commands ``report`` and ``watch``: a run as one page. Importing this loads no numpy."""

from __future__ import annotations

from collections.abc import Sequence

from rlcore.api import CommandSpec, hookimpl

rlcore_api = "1.0"


@hookimpl
def rlcore_register_commands() -> Sequence[CommandSpec]:
    """Offer ``rlcore report`` and ``rlcore watch``."""
    return [
        CommandSpec(
            name="report",
            target="rlcore_plugin_report.report_command:ReportCommand",
            summary="write a run, or several beside each other, as one HTML file",
            position=52,
        ),
        CommandSpec(
            name="watch",
            target="rlcore_plugin_report.watch_command:WatchCommand",
            summary="show a run in the browser while it goes on",
            position=54,
        ),
    ]
