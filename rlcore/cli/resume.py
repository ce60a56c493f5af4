"""``rlcore resume RUN [--step N] [flags of train]``: a run goes on from its newest whole checkpoint."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

from rlcore.cli.flags import add_train_flags, train_flags
from rlcore.cli.train import add_run_options, run_plan
from rlcore.config import plan_run
from rlcore.contracts.command_line import Command
from rlcore.runlog.past_runs import past_runs
from rlcore.runlog.run_lock import locked
from rlcore.runtime.resumption import newest_run, refuse_if_finished, reset_layout, resume_plan

__all__ = ["ResumeCommand"]

_TEXT = (
    "Go on with a run that was interrupted, killed or lost its machine, or train a finished one on (with a greater --max-steps or -e): "
    "from its newest whole checkpoint, with its own settings. Flags override them, but not the data, the seed, or the size of a batch."
)


class ResumeCommand(Command):
    """``rlcore resume``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """The run, ``--step``, ``--any-version``, ``--dry-run``, ``--json``, and the flags of ``train``."""
        parser.usage = "rlcore resume RUN [--step N] [--dry-run] [--json] [-q] [flags of train]"
        parser.description = _TEXT
        parser.add_argument("run", type=Path, metavar="RUN", help="folder of a run, or of a project: then its newest run")
        parser.add_argument("--step", type=int, metavar="N", help="go on from this checkpoint; later ones are removed")
        parser.add_argument("--any-version", action="store_true", help="go on with plugins of another major version too")
        add_run_options(parser)
        add_train_flags(parser, more=_settings)

    def run(self, args: argparse.Namespace) -> int:
        """Plan the run anew, with what was typed above its own settings; then go on."""
        run = newest_run(args.run)
        with nullcontext() if args.dry_run else locked(run.root):
            plan = plan_run([run.root / "run.toml"], {**reset_layout(run), **train_flags(args)}, args.registry)
            refuse_if_finished(plan, run)
            return run_plan(resume_plan(plan, run, step=args.step, any_version=args.any_version), args)


def _settings(words: Sequence[str]) -> list[str]:
    """The ``run.toml`` of the run among the words: it names plugins, whose options are flags too."""
    found = [run for word in words if not word.startswith("-") and Path(word).is_dir() for run in past_runs(Path(word))[:1]]
    return [str(run.root / "run.toml") for run in found[:1]]
