"""``rlcore launch slurm [a.toml …] [flags of train]``: check the run as ``train`` does, then write the batch file that starts it."""

from __future__ import annotations

import argparse
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.api import UsageError
from rlcore.api.commands import RELEASED, Command, TypedFlag, add_train_flags, check_data, plan_run, train_flags

if TYPE_CHECKING:
    from collections.abc import Mapping

    from rlcore.api.commands import Plan
    from rlcore_plugin_ray.launch import SlurmJob

__all__ = ["LaunchCommand"]

_TEXT = """\
Write a batch file for Slurm: a Ray head on the first node, workers on the others, then rlcore train. On SIGTERM the job saves and requeues.
The run is checked first, as rlcore train checks it. Type its flags after the files; the batch file repeats them as typed.
"""
_OURS = {"run.runtime": "the batch file runs on Ray", "run.master_address": "the batch file sets the address of its Ray head"}


class LaunchCommand(Command):
    """The command ``rlcore launch``."""

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        """Add the batch system, the resources of the job, and the flags of train."""
        _add_arguments(parser)

    def run(self, args: argparse.Namespace) -> int:
        """Plan and check the run, print or write the file, and submit it."""
        return _run(args)


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "rlcore launch slurm [FILE.toml …] [--nodes N] [--gpus-per-node G] [--dry-run | --submit] … [flags of rlcore train]"
    parser.description = _TEXT
    parser.add_argument("system", metavar="slurm", help="the batch system")
    parser.add_argument("files", nargs="*", type=Path, metavar="FILE.toml", help="configuration files, merged from left to right")
    parser.add_argument("--nodes", type=_count, metavar="N", help="nodes of the job [1]")
    parser.add_argument("--gpus-per-node", type=_whole, metavar="G", help="GPUs of a node [as many as the run needs]")
    parser.add_argument("--cpus-per-node", type=_count, metavar="C", help="cores of a node [8 for each GPU]")
    parser.add_argument("--time", default="12:00:00", metavar="HH:MM:SS", help="time limit [12:00:00]")
    parser.add_argument("--partition", default="", metavar="NAME", help="partition [Slurm's default]")
    parser.add_argument("--account", default="", metavar="NAME", help="account [Slurm's default]")
    parser.add_argument("--plugin", nargs="+", default=[], metavar="PACKAGE", help="packages that pip installs on every node from an index")
    wheels_help = "folder of wheels from which pip installs rlcore and the run's plugins [every node has them already]"
    parser.add_argument("--wheels", type=Path, metavar="FOLDER", help=wheels_help)
    parser.add_argument("--venv", type=Path, metavar="FOLDER", help="virtual environment of every node [the one in which rlcore runs]")
    parser.add_argument("--container", metavar="IMAGE", help="Apptainer image that every node runs in, instead of an environment")
    parser.add_argument("--out", type=Path, metavar="FILE", help="where to write [the last FILE with .sbatch for .toml]")
    parser.add_argument("--dry-run", "--dry_run", action="store_true", help="print the batch file and write nothing")
    parser.add_argument("--submit", action="store_true", help="submit the batch file with sbatch")
    add_train_flags(parser)


def _run(args: argparse.Namespace) -> int:
    if args.system != "slurm":
        raise UsageError(f"rlcore writes no batch files for {args.system}; type rlcore launch slurm FILE.toml")
    typed = train_flags(args)
    _check_words(args, typed)
    from rlcore_plugin_ray.launch import sbatch_text

    job = _job(args, typed)
    text = sbatch_text(job)
    if args.dry_run:
        _show(text)
        return 0
    out: Path = args.out or (args.files[-1] if args.files else Path("rlcore")).with_suffix(".sbatch")
    if out.exists():
        raise UsageError(f"{out} exists already; delete it, or type --out and another name")
    if not out.absolute().parent.is_dir():
        raise UsageError(f"--out {out}: the folder {out.parent} does not exist; create it, or type another --out")
    if args.submit and shutil.which("sbatch") is None:
        raise UsageError("--submit needs sbatch, which is not found here; leave out --submit, and submit the file on a machine with sbatch")
    _write(out, text)
    machines = job.machines
    print(f"{out}: {machines.nodes} x {machines.gpus} GPUs and {machines.cpus} cores, at most {job.time}", flush=True)
    if args.submit:
        return _submit(out)
    print(f"submit it with: sbatch {shlex.quote(str(out))}")
    return 0


def _write(out: Path, text: str) -> None:
    """Write the whole file or none. Encode the typed text back to its original bytes: the name of a folder need not be UTF-8."""
    data = os.fsencode(text)
    with out.open("xb") as file:
        try:
            file.write(data)
            file.flush()
        except OSError as error:
            out.unlink()
            raise OSError(error.errno, error.strerror, str(out)) from error


def _show(text: str) -> None:
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.buffer.write(os.fsencode(text))
        sys.stdout.flush()
    else:
        print(text, end="")


def _submit(out: Path) -> int:
    """Submit the file and return Slurm's exit code. Remove a refused file, so that the user can type the same command with another flag."""
    code = subprocess.run(["sbatch", str(out)], check=False).returncode
    if code:
        out.unlink(missing_ok=True)
        print(f"{out} was removed, because sbatch refused it")
    return code


def _check_words(args: argparse.Namespace, typed: Mapping[str, TypedFlag]) -> None:
    for path, why in _OURS.items():
        if path in typed and typed[path].words != ("ray",):
            raise UsageError(f"{' '.join(_words(typed[path]))}: {why}; leave it out")
    if args.dry_run and args.submit:
        raise UsageError("--dry-run writes no file that --submit could submit; type one of them")
    if args.venv is not None and args.container is not None:
        raise UsageError("--venv and --container are two environments for one job; type one of them")
    if args.container is not None and args.plugin:
        raise UsageError(f"--plugin {args.plugin[0]} cannot be installed into the image of --container; build the image with it")
    if args.container is not None and args.wheels is not None:
        raise UsageError(f"--wheels {args.wheels} cannot be installed into the image of --container; build the image with it")
    if args.wheels is not None:
        _check_wheels(args.wheels)
    if args.container is not None and "://" not in args.container and not Path(args.container).exists():
        raise UsageError(f"--container {args.container} is not found here; type the path of an image, or an address (docker://…)")
    for package in args.plugin:
        if not re.fullmatch(r"[\w./-][\w.\[\],=<>!~+/@:-]*", package):
            raise UsageError(f"--plugin {package!r} is not a package; type a name, name==version, or a path, each as a separate word")
        _check_owner(package)
    if args.venv is not None and not (args.venv / "bin" / "python").exists():
        raise UsageError(f"--venv {args.venv} is not a virtual environment (it has no bin/python); type a folder made by python -m venv")


def _check_owner(package: str) -> None:
    """Raise UsageError if pip would look for a package of this repository on an index, where a third party may own its name."""
    name = re.sub(r"[-_.]+", "-", re.split(r"[\[@<>=!~]", package)[0]).lower()
    if "/" not in package and not package.endswith(".whl") and (name == "rlcore" or name in RELEASED):
        raise UsageError(f"--plugin {package}: {name} is not on any index; type --wheels and a folder of wheels, or the path of its wheel")


def _check_wheels(folder: Path) -> None:
    """Raise UsageError if the folder does not exist or holds no wheel of the rlcore that checks the run."""
    remedy = "type make wheels in a checkout of rlcore, then --wheels and its folder dist"
    if not folder.is_dir():
        raise UsageError(f"--wheels {folder} is not a folder with a wheel of rlcore {version('rlcore')}; {remedy}")
    if not any(folder.glob(f"rlcore-{version('rlcore')}-*.whl")):
        raise UsageError(f"--wheels {folder} has no wheel of rlcore {version('rlcore')}; {remedy}")


def _plan(args: argparse.Namespace, typed: Mapping[str, TypedFlag]) -> Plan:
    """Return the plan that the batch file's ``rlcore train`` will make. Raise the errors that it would raise."""
    plan = _planned(args, {**typed, "run.master_address": TypedFlag("--master_address", ("head:20000",))})
    check_data(plan)
    if plan.missing:
        raise UsageError("; ".join(str(item) for item in plan.missing))
    return plan


def _planned(args: argparse.Namespace, typed: Mapping[str, TypedFlag]) -> Plan:
    return plan_run(args.files, {**typed, "run.runtime": TypedFlag("--runtime", ("ray",))}, args.registry)


def _ray_dir(args: argparse.Namespace, typed: Mapping[str, TypedFlag]) -> str:
    """Return the folder for Ray's files as an absolute path for all nodes, "" if none was chosen. The node that starts Ray creates it."""
    from rlcore_plugin_ray.ray_folder import check_ray_folder

    chosen = _planned(args, {**typed, "run.master_address": TypedFlag("--master_address", ("none",))}).config.run.ray_dir
    if chosen is None:
        return ""
    folder = _absolute(Path(chosen))
    check_ray_folder(Path(folder))
    return folder


def _job(args: argparse.Namespace, typed: Mapping[str, TypedFlag]) -> SlurmJob:
    from rlcore_plugin_ray.launch import SlurmJob, check_machines, machines_for, packages_of

    ray_dir = _ray_dir(args, typed)
    # The head gets the folder; the driver joins that cluster and needs none.
    typed = {**typed, "run.ray_dir": TypedFlag("--ray_dir", ("none",))} if ray_dir else typed
    plan = _plan(args, typed)
    machines = machines_for(plan.config, args.nodes, args.gpus_per_node, args.cpus_per_node)
    check_machines(plan.config, machines)
    return SlurmJob(
        project=plan.config.run.project,
        folder=str(Path.cwd()),
        train=[*map(str, args.files), *(word for path in typed if path not in _OURS for word in _words(typed[path]))],
        machines=machines,
        packages=packages_of(plan, tuple(args.plugin)),
        time=args.time,
        partition=args.partition,
        account=args.account,
        venv="" if args.container else _environment(args.venv),
        container=args.container or "",
        ray_dir=ray_dir,
        wheels=_absolute(args.wheels) if args.wheels else "",
    )


def _words(typed: TypedFlag) -> list[str]:
    """Return a flag as it can be typed again; a value that begins with a dash is joined to it with "="."""
    flag, words = typed.flag, list(typed.words)
    if flag.startswith(("--no-", "--no_")) and words == ["false"]:
        return [flag]
    return [f"{flag}={words[0]}"] if len(words) == 1 and words[0].startswith("-") else [flag, *words]


def _environment(venv: Path | None) -> str:
    """Return the typed environment, or else the virtual environment of this process, "" if it has none."""
    if venv is not None:
        return _absolute(venv)
    return sys.prefix if sys.prefix != sys.base_prefix else ""


def _absolute(path: Path) -> str:
    return os.path.abspath(path)  # noqa: PTH100 - Path.resolve would follow links that nodes may not share


def _whole(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 0 to 999999")
    return int(text)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 1 <= int(text) < 1_000_000):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 999999")
    return int(text)
