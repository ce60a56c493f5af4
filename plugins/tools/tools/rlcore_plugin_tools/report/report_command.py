"""``rlcore report RUN [RUN …]``: one HTML file that needs no network, of one run or of several side by side."""

from __future__ import annotations

import argparse
import json
from datetime import datetime
from pathlib import Path

from rlcore.api import UsageError
from rlcore.api.commands import Command, ExampleFormatter, escape_control, runs_among

__all__ = ["ReportCommand", "add_bounds"]

_TEXT = """\
Write one HTML file that needs no network: learning curves, evaluations, where the time went, lengths and rewards, rollouts to search and
to compare, settings, versions. A run that is still running, was interrupted or was killed is shown up to its last update.
"""
_EPILOG = """\
examples:
  rlcore report runs/rlcore/20260131-120000-3f2a1b
  rlcore report runs/rlcore/*                        # runs that differ only by their seed become a mean with an interval
  rlcore report runs/rlcore/* -o /tmp/sweep.html --rollouts 2000
"""


class ReportCommand(Command):
    """The command ``rlcore report``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the runs, the output file and the size limits."""
        parser.usage = "rlcore report RUN [RUN …] [-o FILE] [--rollouts N] [--characters N] [--json]"
        parser.description = _TEXT
        parser.epilog = _EPILOG
        parser.formatter_class = ExampleFormatter
        parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="a run folder; a project means its newest run")
        parser.add_argument(
            "-o", "--output", type=Path, metavar="FILE", help="output file [RUN/report.html; for several runs ./report.html]"
        )
        add_bounds(parser, rollouts=10_000)
        parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")

    def run(self, args: argparse.Namespace) -> int:
        """Write the report and print its path."""
        from rlcore_plugin_tools.report.page_text import page
        from rlcore_plugin_tools.report.report_content import Bounds, ReportContent, run_folder

        runs = [run_folder(run) for run in runs_among(args.runs)]
        content = ReportContent(runs, Bounds(args.rollouts, args.characters))
        target = args.output or (runs[0] / "report.html" if len(runs) == 1 else Path("report.html"))
        if target.exists() and not target.is_file():  # a rename would replace a device, such as /dev/null, for the whole machine
            raise UsageError(f"-o {target}: is {'a folder' if target.is_dir() else 'not a regular file'}; name a file to write")
        figures = {**content.figures(), "made": datetime.now().astimezone().isoformat(timespec="seconds")}
        rollouts = content.rollouts()
        data = page(figures, rollouts)
        _write(target, data)
        told = {
            "report": str(target),
            "bytes": len(data),
            "runs": [
                {
                    "run": run["folder"],
                    "state": run["state"],
                    "steps": len(run["steps"]),
                    "rollouts": part["rollouts"],
                    "answers": part["answers"],
                }
                for run, part in zip(figures["runs"], rollouts["told"], strict=True)
            ],
        }
        if args.json:
            print(json.dumps(told))
        else:
            held = f"{rollouts['count']} rollouts and answers" if rollouts["count"] else "no rollouts"
            print(f"{escape_control(str(target))} ({_size_words(len(data))}, {held}); open it in a browser")
        return 0


def add_bounds(parser: argparse.ArgumentParser, rollouts: int) -> None:
    """Add the flags that limit how much a page holds."""
    parser.add_argument(
        "--rollouts",
        type=_natural,
        default=rollouts,
        metavar="N",
        help=f"most rollouts in the page, in whole groups evenly over the steps, and a quarter as many answers of evaluations [{rollouts}]",
    )
    parser.add_argument(
        "--characters", type=_positive, default=6000, metavar="N", help="most characters of one text; the middle is left out [6000]"
    )


def _size_words(size: int) -> str:
    """Return a size in words, such as ``1.4 MB``."""
    return f"{size / 1e6:.1f} MB" if size >= 100_000 else f"{size / 1e3:.0f} kB"


def _write(target: Path, data: bytes) -> None:
    """Write the whole file or nothing; UsageError if it cannot be written there."""
    aside = target.with_name(f".{target.name}.partial")
    try:
        aside.write_bytes(data)
        aside.replace(target)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise UsageError(f"{target} cannot be written ({error.strerror}); choose another place with -o FILE") from None


def _natural(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 0 or more")
    return int(text)


def _positive(text: str) -> int:
    if not text.isdecimal() or not int(text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of 1 or more")
    return int(text)
