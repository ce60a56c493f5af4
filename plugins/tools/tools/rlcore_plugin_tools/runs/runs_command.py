"""``rlcore runs``: lists the existing runs, a row each."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.api import UsageError
from rlcore.api.commands import Command, ExampleFormatter

if TYPE_CHECKING:
    from rlcore_plugin_tools.runs.run_list import RunRow

__all__ = ["RunsCommand"]

_SORTS = ("time", "name", "state", "step", "best", "reward", "seconds")
_MOST_SETTINGS = 8
"""The most settings in a line; --json has all."""
_EPILOG = """\
examples:
  rlcore runs                              # every project below ./runs
  rlcore runs demo/runs --sort best        # the best evaluation first
  rlcore runs --project gsm8k --limit 10   # the ten newest of one project

state: finished, interrupted (and saved), running, ended (it died, or was killed), damaged (one of its files cannot be read)
best:  by log.best_by of each run, at the step after the @"""


class RunsCommand(Command):
    """The command ``rlcore runs``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the folder, and the choice and order of rows."""
        parser.formatter_class = ExampleFormatter
        parser.usage = "rlcore runs [FOLDER] [--project P] [--sort BY] [--limit N] [--json]"
        parser.epilog = _EPILOG
        parser.add_argument("folder", nargs="?", type=Path, default=Path("runs"), metavar="FOLDER", help="a folder of projects or of runs")
        parser.add_argument("-p", "--project", metavar="P", help="the runs of this project in FOLDER only")
        parser.add_argument("--sort", choices=_SORTS, default="time", metavar="BY", help=f"{', '.join(_SORTS)}; time: the newest first")
        parser.add_argument("-n", "--limit", type=int, metavar="N", help="show the first N only")
        parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")

    def run(self, args: argparse.Namespace) -> int:
        """Print the rows."""
        from rlcore_plugin_tools.runs.run_list import run_folders, run_row, sorted_rows
        from rlcore_plugin_tools.settings_compared import differing_settings

        if args.limit is not None and args.limit < 1:
            raise UsageError(f"rlcore runs --limit {args.limit}: type a number of runs, at least 1")
        folders = run_folders(args.folder, args.project)
        if args.sort == "time":
            folders = folders[: args.limit]
        rows = sorted_rows([run_row(folder) for folder in folders], args.sort)[: args.limit]
        differ = differing_settings([row.settings for row in rows if not row.problem])
        if args.json:
            print(json.dumps({"runs": [row.as_json(differ) for row in rows], "differ": differ}))
        else:
            _show(rows, differ)
        return 0


def _show(rows: Sequence[RunRow], differ: Sequence[str]) -> None:
    from rlcore.api.commands import plain_console
    from rlcore_plugin_tools.runs.aligned_table import say, show_rows

    console = plain_console()
    show_rows(console, ("run", "state", "step", "best", "reward", "time", "differs in"), [_cells(row, differ) for row in rows])
    if len(differ) > _MOST_SETTINGS:
        say(console, f"\n{len(differ) - _MOST_SETTINGS} more settings differ: rlcore compare RUN RUN names them, and so does --json")


def _cells(row: RunRow, differ: Sequence[str]) -> tuple[str, ...]:
    from rlcore_plugin_tools.runs.figures_text import clock, figure
    from rlcore_plugin_tools.runs.run_settings import short_names, value_text

    if row.problem:
        return str(row.folder), row.state, "", "", "", "", row.problem
    names = short_names(differ)
    told = (f"{names[path]}={value_text(row.settings, path)}" for path in differ[:_MOST_SETTINGS])
    return (
        str(row.folder),
        row.state,
        str(row.step) if row.planned is None else f"{row.step}/{row.planned}",
        f"{figure(row.best.value)} @{row.best.step} {row.best.name}" if row.best else "–",
        figure(row.reward),
        clock(row.seconds),
        " ".join(told),
    )
