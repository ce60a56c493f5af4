"""``rlcore resume RUN [--step N | --best] [flags of train]``: resume a run from its newest complete checkpoint."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rlcore.cli.flags import add_train_flags, train_flags
from rlcore.cli.train import add_run_options, run_plan
from rlcore.config import plan_run
from rlcore.contracts.command_line import Command
from rlcore.runlog.past_runs import past_runs
from rlcore.runlog.run_lock import locked
from rlcore.runtime.resumption import best_step, check_changes, newest_run, reset_layout, resume_plan

__all__ = ["ResumeCommand"]

_TEXT = (
    "Resume a run that was interrupted, killed or lost its machine, or train a finished one further (raise --max-steps or -e). The run "
    "continues from its newest complete checkpoint, with its own settings. Flags override them, except the data, the seed and the batch "
    "size."
)


class ResumeCommand(Command):
    """``rlcore resume``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the run, ``--step``, ``--best``, ``--any-version``, ``--dry-run``, ``--json``, and the flags of ``train``."""
        parser.usage = "rlcore resume RUN [--step N | --best] [--dry-run] [--json] [-q] [flags of train]"
        parser.description = _TEXT
        parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, or of a project: then its newest run")
        chosen = parser.add_mutually_exclusive_group()
        chosen.add_argument("--step", type=int, metavar="N", help="resume from this checkpoint; later ones are removed")
        chosen.add_argument("--best", action="store_true", help="resume from the best checkpoint (--best-by); later ones are removed")
        parser.add_argument("--any-version", action="store_true", help="also resume with plugins of another major version")
        add_run_options(parser)
        add_train_flags(parser, more=_settings)

    def run(self, args: argparse.Namespace) -> int:
        """Plan the run again, with typed flags above its own settings, then resume it."""
        run = newest_run(args.run)
        with nullcontext() if args.dry_run else locked(run.root):
            typed = train_flags(args)
            plan = plan_run([run.root / "run.toml"], {**reset_layout(run), **typed}, args.registry)
            step = best_step(plan, run) if args.best else args.step
            check_changes(plan, run, step=step, typed=typed)
            return run_plan(resume_plan(plan, run, step=step, any_version=args.any_version), args)


def _settings(words: Sequence[str]) -> list[str]:
    """Return the ``run.toml`` of the run among the words. It names plugins, whose options are flags too."""
    folders = [Path(word) for word in words if not word.startswith("-") and os.path.isdir(word)]  # noqa: PTH112 - Path raises if too long
    found = [run for folder in folders for run in past_runs(folder)[:1]]
    return [str(run.root / "run.toml") for run in found[:1]]
