"""``rlcore rollouts``: a run's model answers. A terminal shows one rollout at a time; otherwise all are printed, or written as JSON or
Parquet."""

from __future__ import annotations

import argparse
import json
import os
import sys
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.api import Outcome, UsageError
from rlcore.api.commands import Command, ExampleFormatter

if TYPE_CHECKING:
    from rlcore_plugin_tools.runs.rollout_rows import RolloutFilter, RolloutSource

__all__ = ["RolloutsCommand"]

_EPILOG = """\
examples:
  rlcore rollouts runs/gsm8k                               # the newest run of a project
  rlcore rollouts RUN --step 40 --outcome malformed        # malformed answers after 40 updates
  rlcore rollouts RUN --min-reward 1 --search '\\boxed{}'   # rewarded, and suspicious
  rlcore rollouts RUN --eval aime --prompt test:7          # one held-out prompt over the whole training
  rlcore rollouts RUN --json | jq .reward

on a terminal: n or right for the next, p or left for the previous, up, down, space and b to scroll, q to quit;
               / then words and Enter for the next one that contains them, / and Enter to repeat the search"""


_PIPED = 20
"""Rollouts that are printed as text where there is no terminal and no ``--limit``."""


class RolloutsCommand(Command):
    """The command ``rlcore rollouts``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the run, the filters, and the output formats."""
        parser.formatter_class = ExampleFormatter
        parser.usage = "rlcore rollouts RUN [--step N] [--eval TASK] [--outcome OUTCOME] [--search TEXT] [--json | --parquet FILE] [flags]"
        parser.epilog = _EPILOG
        parser.add_argument("run", type=Path, metavar="RUN", help="a run folder; a project means its newest run")
        parser.add_argument("--step", type=int, metavar="N", help="rollouts of this update only")
        parser.add_argument("--eval", metavar="TASK", help="answers to this held-out task instead of training's")
        parser.add_argument("--min-reward", type=float, metavar="X", help="rollouts with at least this reward")
        parser.add_argument("--max-reward", type=float, metavar="X", help="rollouts with at most this reward")
        outcomes = [outcome.value for outcome in Outcome]
        parser.add_argument("--outcome", choices=outcomes, metavar="OUTCOME", help=f"rollouts with this outcome: {', '.join(outcomes)}")
        parser.add_argument("--search", metavar="TEXT", help="rollouts with this text (any case) in prompt, answer, gold, parsed or reason")
        parser.add_argument("--prompt", metavar="ID", help="rollouts of the prompt with this id (train:12)")
        parser.add_argument("-n", "--limit", type=int, metavar="N", help=f"the first N that match [{_PIPED} if not on a terminal]")
        parser.add_argument("--json", action="store_true", help="print one JSON object per rollout, one per line")
        parser.add_argument("--parquet", type=Path, metavar="FILE", help="write them to a Parquet file; needs pyarrow")

    def run(self, args: argparse.Namespace) -> int:
        """Show, print or write the rollouts."""
        from rlcore_plugin_tools.runs.rollout_rows import RolloutFilter, rollout_source
        from rlcore_plugin_tools.runs.run_list import named_run

        if args.limit is not None and args.limit < 1:
            raise UsageError(f"rlcore rollouts --limit {args.limit}: type a number of rollouts, at least 1")
        wanted = RolloutFilter(
            min_reward=args.min_reward, max_reward=args.max_reward, outcome=args.outcome, search=args.search, prompt=args.prompt
        )
        source = rollout_source(named_run(args.run), args.step, args.eval)
        if args.parquet is not None:
            _write(source, wanted, args)
        elif args.json:
            _print_json(source, wanted, args.limit)
        else:
            _show(source, wanted, args.limit)
        return 0


def _write(source: RolloutSource, wanted: RolloutFilter, args: argparse.Namespace) -> None:
    from rlcore_plugin_tools.runs.parquet_rows import write_parquet

    count = write_parquet(islice(source.matching(wanted), args.limit), args.parquet)
    print(json.dumps({"parquet": str(args.parquet), "rows": count}) if args.json else f"{count} rollouts in {args.parquet}")


def _print_json(source: RolloutSource, wanted: RolloutFilter, limit: int | None) -> None:
    for row in islice(source.matching(wanted), limit):
        print(json.dumps(row))


def _show(source: RolloutSource, wanted: RolloutFilter, limit: int | None) -> None:
    from rlcore_plugin_tools.runs.rollout_cursor import RolloutCursor
    from rlcore_plugin_tools.runs.rollout_text import rollout_lines

    _take_any_character()
    interactive = sys.stdin.isatty() and sys.stdout.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")
    if interactive:
        reel = RolloutCursor(source, wanted, limit)
        if reel.at(0) is not None:
            from rlcore_plugin_tools.runs.rollout_pager import page

            page(reel)
            return
    most = limit or _PIPED
    matching = source.matching(wanted)
    shown = 0
    for shown, row in enumerate(islice(matching, most), 1):
        print(("\n" if shown > 1 else "") + "\n".join(rollout_lines(row)))
    if not shown:
        print("no rollout matches", file=sys.stderr)
    elif limit is None and (more := sum(1 for _ in matching)):
        print(f"{shown} of {shown + more} rollouts; -n {shown + more} prints all, --json one per line", file=sys.stderr)


def _take_any_character() -> None:
    """Escape characters that the terminal's encoding lacks, as ``\\u2192``, since a model may write anything."""
    reconfigure = getattr(sys.stdout, "reconfigure", None)
    if reconfigure is not None:
        reconfigure(errors="backslashreplace")
