"""``rlcore train [a.toml b.toml …] [flags] [--dry-run] [--json]``: plan and check, then run or print the plan."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.cli.flags import add_train_flags, train_flags
from rlcore.config import Plan, plan_run
from rlcore.config.data_source import is_file, source_of, source_spec
from rlcore.config.layers import replaced
from rlcore.config.machine_check import check_machine
from rlcore.config.run_config import DataSource
from rlcore.contracts.command_line import Command
from rlcore.contracts.errors import PluginError, RunError, UsageError
from rlcore.contracts.specs import PluginKind
from rlcore.registry.error_context import stdout_to_stderr

if TYPE_CHECKING:
    from rlcore.registry.plugin_registry import Registry

__all__ = ["INTERRUPTED", "TrainCommand", "add_run_options", "check_data", "plan_of", "run_plan"]

_READ_TWICE = 4 << 20
"""Bytes of data files that a run may read twice, in less than a second."""
_COUNTING_SECONDS = 20.0
"""The time in which a dry run expects the end of rows that come from no file."""
INTERRUPTED = 130
"""The exit code of a run that Ctrl-C ended, saved or not. Scripts that wait for a complete run must see the difference."""

_TEXT = (
    "Train a model with settings from TOML files and flags. Later files override earlier ones, flags override files, and the last of a "
    "repeated flag counts."
)


class TrainCommand(Command):
    """``rlcore train``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the files, ``--dry-run``, ``--json``, and a flag for every setting."""
        parser.usage = "rlcore train [FILE.toml …] [--dry-run] [--json] [-q] [flags]"
        parser.description = _TEXT
        parser.add_argument("files", nargs="*", type=Path, metavar="FILE.toml", help="configuration files, merged left to right")
        text = "resume the newest run with these settings"
        parser.add_argument("--resume", metavar="auto", help=text)
        add_run_options(parser)
        add_train_flags(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Plan the run from the typed words, and run it."""
        if args.resume not in (None, "auto"):
            raise UsageError(f"--resume {args.resume}: its only value is auto; to resume a certain run, type rlcore resume {args.resume}")
        plan = plan_of(args.files, args)
        return run_plan(plan, args) if args.resume is None else _resume(plan, args)


def add_run_options(parser: argparse.ArgumentParser) -> None:
    """Add ``--dry-run``, ``--json`` and ``--quiet``, which ``run_plan`` reads."""
    parser.add_argument("--dry-run", "--dry_run", action="store_true", help="only print the plan and what is missing")
    parser.add_argument("--json", action="store_true", help="print one JSON object as the last line")
    parser.add_argument("-q", "--quiet", action="store_true", help="print only warnings and the outcome")


def plan_of(files: list[Path], args: argparse.Namespace, *, require: bool = True) -> Plan:
    """Return the plan of TOML files and the flags in ``args``. Raises ConfigError and PluginError, one sentence each."""
    return plan_run(files, train_flags(args), args.registry, require=require)


def run_plan(plan: Plan, args: argparse.Namespace) -> int:
    """Check this machine and the data, then print the plan (``args.dry_run``) or run it. Return the exit code.

    A run reads its data itself. Small files are read here, too, so that the reason for refusing one is the only line.

    Raises UsageError if something is missing."""
    plan = check_machine(plan)
    checked = check_data(plan, dry=args.dry_run) if args.dry_run or _is_small(plan) else plan
    if args.dry_run:
        from rlcore.cli.plan_view import plan_json, show_plan

        if args.json:
            print(json.dumps(plan_json(checked), ensure_ascii=False))
        else:
            show_plan(checked)
        return 0
    if plan.missing:
        raise UsageError("; ".join(str(item) for item in plan.missing))
    return _train(plan, as_json=args.json, quiet=args.quiet)


def _resume(plan: Plan, args: argparse.Namespace) -> int:
    """Handle ``--resume auto``, which makes one run of the same command typed repeatedly."""
    from rlcore.runtime.resumption import auto, summary_of

    with auto(plan, dry=args.dry_run) as (plan, run):
        if run is None:
            return run_plan(plan, args)
        text = f"{run.root} is finished, after {run.finished} updates; to train further: rlcore resume {run.root}"
        print(f"{text} with a larger --max-steps or -e", file=sys.stderr if args.json else sys.stdout)
        if args.json:
            print(json.dumps(summary_of(run).as_json(), ensure_ascii=False, allow_nan=False))
        return 0


def _train(plan: Plan, *, as_json: bool, quiet: bool) -> int:
    from rlcore.cli.consoles import RunConsole
    from rlcore.cli.line_display import run_shown
    from rlcore.cli.run_summary import show_outcome
    from rlcore.runtime import run as run_roles

    console = RunConsole(stderr=as_json)
    with stdout_to_stderr(for_all=True) if as_json else nullcontext(), run_shown(plan, console, quiet=quiet, as_json=as_json) as display:
        summary = run_roles(plan, display)
    show_outcome(summary, console, reports=plan.registry.has(PluginKind.COMMAND, "report"))
    if as_json:
        print(json.dumps(summary.as_json(), ensure_ascii=False, allow_nan=False))  # a figure that does not exist is null
    return INTERRUPTED if summary.interrupted else 0


def check_data(plan: Plan, *, dry: bool = False) -> Plan:
    """Read every data file that exists locally. Return the plan, with notes on the data if ``dry``. Raises DataError with ``file:line``.

    If a reward or the named row format is not installed, the required columns are not known, and nothing is read.

    Downloads nothing.

    :param dry: no run follows. Then data sources that are neither files nor remote are read, too; a run reads them when it starts.
    """
    lacks_reward = any(len(part.plan.reward_specs()) < len(part.plan.config.rewards) for part in plan.parts)
    if lacks_reward or any(item.path == "data.format" for item in plan.missing):
        return plan
    from rlcore.data import load_eval, load_prompts
    from rlcore.runtime.loading import bad_rows_of, check_template, data_notes

    notes: list[str] = []

    def chosen(source: DataSource, plan: Plan) -> bool:
        return _is_here(source, plan.registry) or (dry and _ends_here(source, plan, notes))

    data = {}
    for part in plan.parts:
        own, specs = part.plan.config, part.plan.reward_specs()
        if here := [source for source in own.data.sources if chosen(source, part.plan)]:
            named = replaced(own, "data.dataset", tuple(here))
            data[part.data_name("train")] = load_prompts(named, specs, plan.registry, notes.append)
        for task, path in own.eval.eval_dataset.items():
            if chosen(DataSource(path=path), part.plan):
                data[f"eval/{task}"] = load_eval(path, specs, plan.registry, own.data, notes.append)
    if not dry:  # the run says them
        return plan
    notes += data_notes(plan, data)
    if not plan.missing:
        check_template(plan)
    return replace(plan, notes=(*plan.notes, *dict.fromkeys(notes)), bad_rows=bad_rows_of(data))


def _is_small(plan: Plan) -> bool:
    sources = [source for part in plan.parts for source in part.plan.config.data_sets]
    return sum(Path(source.path).stat().st_size for source in sources if _is_here(source, plan.registry)) <= _READ_TWICE


def _is_here(source: DataSource, registry: Registry) -> bool:
    return is_file(source, registry) and Path(source.path).exists()


def _ends_here(source: DataSource, plan: Plan, notes: list[str]) -> bool:
    """Return whether a data source that reads no file gives all its rows on this machine. Raises DataError if its rows do not end.

    A data source that cannot be imported here is left to the run. ``notes`` receives a sentence if its rows take too long to count."""
    from rlcore.data import check_end

    if (
        is_file(source, plan.registry)
        or not plan.registry.has(PluginKind.DATA, source_of(source, plan.registry))
        or source_spec(source, plan.registry).remote
    ):
        return False
    try:
        ends = check_end(source, plan.registry, plan.config.data.max_rows, _COUNTING_SECONDS)
    except (PluginError, RunError):
        return False
    if not ends:
        slow = f"they had not ended after {_COUNTING_SECONDS:g} s"
        notes.append(f"{source.path}: its rows were not checked, because {slow}; --max-rows bounds them")
    return ends
