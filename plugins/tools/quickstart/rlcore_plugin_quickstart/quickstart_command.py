"""``rlcore quickstart [DIR] [--task NAME] [flags of train]``: make a tiny model and its data, then run ``train DIR/run.toml``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from rlcore.api import PluginError, UsageError
from rlcore.api.commands import (
    EXTRAS,
    Command,
    Missing,
    Plan,
    add_run_options,
    add_train_flags,
    install_line,
    plan_of,
    run_plan,
    train_flags,
)
from rlcore.api.sandbox import SandboxError, SandboxOptions, open_sandbox
from rlcore_plugin_quickstart.assets import default_folder, made_for, prepare
from rlcore_plugin_quickstart.recipe import SORT, TASKS, QuickstartTask, run_toml

__all__ = ["QuickstartCommand"]

_TEXT = (
    "Make a tiny language model and a task, then watch the model learn by reinforcement learning. "
    "Writes train.jsonl, heldout.jsonl, base/ and run.toml into DIR and trains as `rlcore train DIR/run.toml` does; "
    "every flag of train works here too."
)
_CHOSEN = {"inference.name": "transformers", "training.name": "torch", "algorithm.name": "grpo", "rewards": "boxed"}
"""The plugins of ``run.toml``. Their options are flags of this command unless the flags choose other plugins."""


class QuickstartCommand(Command):
    """The command ``rlcore quickstart``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the folder and all arguments of ``train``."""
        parser.usage = "rlcore quickstart [DIR] [--task sort|tools|repair] [--seed N] [--dry-run] [--json] [-q] [flags of train]"
        parser.description = _TEXT
        help_text = "folder for model, data, run.toml and runs [quickstart; with --task tools and --seed N: quickstart-tools-N]"
        parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help=help_text)
        help_text = (
            "sort: sort digits; tools: call a calculator, in a program that uses an OpenAI client; repair: repair small repositories, with "
            "patches that tests grade in a sandbox [sort, or the task of DIR]"
        )
        parser.add_argument("--task", choices=list(TASKS), help=help_text)
        add_run_options(parser)
        add_train_flags(parser, names=_CHOSEN)

    def run(self, args: argparse.Namespace) -> int:
        """Check the typed arguments, make the folder if it is not there yet, and train."""
        made = made_for(args.folder) if args.folder is not None else None
        task = TASKS[args.task] if args.task else made[1] if made else SORT
        wanted = _sketch(Path("quickstart"), 0, args, task)
        seed = wanted.config.run.seed if "run.seed" in train_flags(args) else None
        folder: Path = args.folder if args.folder is not None else default_folder(seed or 0, task)
        if wanted.missing and not args.dry_run:
            raise UsageError(_told(wanted.missing))
        if task.sessions:
            _must_have_sessions(task)
        if args.dry_run and made_for(folder) is None:
            return run_plan(_sketch(folder, seed or 0, args, task), args)
        told = sys.stderr if args.json else sys.stdout
        assets = prepare(folder, seed, lambda line: None if args.quiet else print(line, file=told, flush=True), task)
        return run_plan(plan_of([assets.run_toml], args), args)


def _must_have_sessions(task: QuickstartTask) -> None:
    """Raise UsageError if this machine has no sandbox with sessions."""
    try:
        open_sandbox(SandboxOptions(level="namespaces", backend_options={"packages": []})).close()
    except SandboxError as error:
        if isinstance(error.__cause__, PluginError):
            raise UsageError(f"the task {task.name} runs what the model writes in a sandbox: {error}") from error
        raise UsageError(
            f"the task {task.name} runs what the model writes in sessions of a sandbox, which need bubblewrap and a kernel that lets it "
            f"make namespaces; type: apt install bubblewrap ({str(error).partition(';')[0]})"
        ) from error


def _sketch(folder: Path, seed: int, args: argparse.Namespace, task: QuickstartTask) -> Plan:
    """Return the plan of a folder that is not made yet, so that a wrong flag is refused before anything is written."""
    with TemporaryDirectory(prefix="rlcore-") as aside:
        file = Path(aside) / "run.toml"
        file.write_text(run_toml(folder, seed, aside=True, task=task), encoding="utf-8")
        named = (str(file), str(folder / "run.toml"))
        try:
            plan = plan_of([file], args)
        except UsageError as error:
            raise UsageError(str(error).replace(*named)) from error
    own = tuple(str(folder.absolute() / name) for name in ("base", "train.jsonl", "heldout.jsonl"))
    return replace(
        plan,
        missing=tuple(_with_extra(item) for item in plan.missing if not any(path in item.what for path in own)),
        origins={path: replace(origin, detail=origin.detail.replace(*named)) for path, origin in plan.origins.items()},
        notes=tuple(note for note in plan.notes if not any(path in note for path in own)),
    )


def _with_extra(item: Missing) -> Missing:
    """Replace the command for a package that the extra ``quickstart`` installs by the command that installs the whole extra."""
    brought = {install_line(f"rlcore-plugin-{name}") for name in EXTRAS["quickstart"]}
    return replace(item, command=install_line("rlcore[quickstart]")) if item.command in brought else item


def _told(missing: Sequence[Missing]) -> str:
    """Return one command for everything that the extra installs, then everything else that is missing."""
    line = install_line("rlcore[quickstart]")
    brought = [item.what for item in missing if item.command == line]
    extra = [f"the quickstart needs packages that are not installed; type: {line} ({'; '.join(brought)})"] if brought else []
    return "; ".join([*extra, *(str(item) for item in missing if item.command != line)])
