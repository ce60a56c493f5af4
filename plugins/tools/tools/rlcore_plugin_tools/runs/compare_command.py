"""``rlcore compare``: runs and evaluations side by side."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rlcore.api import UsageError
from rlcore.api.commands import Command, ExampleFormatter, runs_among

__all__ = ["CompareCommand"]

_EPILOG = """\
examples:
  rlcore compare runs/gsm8k/20260131-120000-a1b2c3 runs/gsm8k/20260131-150000-d4e5f6
  rlcore compare runs/sweep/*                        # runs that differ only in their seed are one column: mean and interval over seeds
  rlcore compare A B --metric eval/aime/pass@8 entropy
  rlcore compare old.jsonl new.jsonl                 # two files of rlcore eval --out: accuracy, outcomes and cost by task

Intervals are 95 % intervals. Those of one run's evaluation are over its prompts; a paired difference is over the prompts that both runs
answered (Student's t over the differences by prompt). Intervals over seeds are Student's t, and Welch's for a difference."""


class CompareCommand(Command):
    """The command ``rlcore compare``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the runs and the choice of figures."""
        parser.formatter_class = ExampleFormatter
        parser.usage = "rlcore compare A B [C …] [--metric NAME …] [--json]"
        parser.epilog = _EPILOG
        told = "run folders, of which a project means its newest run; or files of rlcore eval (--out, --json)"
        parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help=told)
        parser.add_argument(
            "--metric", nargs="+", default=[], metavar="NAME", help="figures of metrics.jsonl (docs/reference/metrics.md) [a selection]"
        )
        parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")

    def run(self, args: argparse.Namespace) -> int:
        """Print the comparison."""
        from rlcore_plugin_tools.runs.comparison import compare
        from rlcore_plugin_tools.runs.evaluation_record import is_evaluation

        if len(args.runs) < 2:
            raise UsageError(f"rlcore compare needs at least two runs and got only {args.runs[0]}; rlcore runs lists them")
        evaluations = [path for path in args.runs if is_evaluation(path)]
        others = [path for path in args.runs if path not in evaluations]
        taken = [*evaluations, *(runs_among(others, least=max(0, 2 - len(evaluations))) if others else ())]
        comparison = compare([path for path in args.runs if path in taken], args.metric)
        if args.json:
            print(json.dumps(comparison.as_json()))
        else:
            from rlcore_plugin_tools.runs.comparison_text import show_comparison

            show_comparison(comparison)
        return 0
