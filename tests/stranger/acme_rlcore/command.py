"""``rlcore acme-report RUN``: one figure of a run, from its first update to its last."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlcore.api import UsageError
from rlcore.api.commands import Command


class ReportCommand(Command):
    """Reads ``metrics.jsonl`` of a run folder, one JSON object for each update."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the run folder, the figure, and ``--json``."""
        parser.usage = "rlcore acme-report RUN [--figure NAME] [--json]"
        parser.add_argument("run", type=Path, metavar="RUN", help="a run folder")
        parser.add_argument("--figure", default="reward/mean", metavar="NAME", help="a figure of metrics.jsonl [reward/mean]")
        parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")

    def run(self, args: argparse.Namespace) -> int:
        """Print the figure of the first update and of the last. Raise UsageError if the folder or the figure does not exist."""
        file = args.run / "metrics.jsonl"
        if not file.is_file():
            raise UsageError(f"{args.run} is not a run folder: it has no metrics.jsonl; type the folder that rlcore train prints")
        rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
        values = [row[args.figure] for row in rows if args.figure in row]
        if not values:
            raise UsageError(f"--figure {args.figure}: no update of {args.run} has it; type a name from {file}")
        if args.json:
            print(json.dumps({"figure": args.figure, "updates": len(values), "first": values[0], "last": values[-1]}))
        else:
            print(f"{args.figure}: {values[0]:.3f} -> {values[-1]:.3f} in {len(values)} updates")
        return 0
