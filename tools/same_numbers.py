"""Does this checkout train to the same bits as another commit? ``python tools/same_numbers.py [COMMIT] [--steps 20]``.

Without COMMIT it compares with the base, which ``same_numbers_base.toml`` names, beside this file. Both codes train the quickstart's model
on the quickstart's data at staleness 0. Every figure of metrics.jsonl that both have and that is no time, every evaluation and every tensor
of the last checkpoint must be equal, to the bit. Figures that only this checkout has are listed; one that it lacks is a difference.
``--runtime`` compares runs on other runtimes as well: ``in_process``, ``local``, and two producers with two ranks on ``local`` or Ray.

Each side reads its plugins from the pyproject.toml files of its own checkout, so distributions may be merged, moved or renamed in between.
Both run in the environment of this interpreter, on assets that this checkout makes, unless the flags name others. The last line is one
JSON object; exit code 1 if anything differs, 2 if a run could not be made.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
BASE = Path(__file__).with_name("same_numbers_base.toml")
ASSETS = ("base", "heldout.jsonl", "run.toml", "train.jsonl")
"""What the quickstart makes, and a run reads."""
WORDS = {
    "auto": (),
    "in_process": ("--runtime", "in_process"),
    "local": ("--runtime", "local"),
    "local-2x2": ("--runtime", "local", "-i", "2", "-t", "2"),
    "ray-2x2": ("--runtime", "ray", "-i", "2", "-t", "2"),
}
"""What is typed for a run by each name of ``--runtime``."""
TIMES = ("time/", "reward/latency", "seconds", "tokens_per_second")
"""Beginnings of the names of figures that are seconds, or are counted by the second."""
RUN = """
import pathlib, sys, rlcore
from rlcore.cli import main
code = main(sys.argv[1:])
files = {name: getattr(module, "__file__", None) for name, module in sys.modules.items() if name.startswith("rlcore")}
strange = [f"{name} is {file}" for name, file in files.items() if file and pathlib.Path.cwd() not in pathlib.Path(file).resolve().parents]
sys.exit(f"{strange[0]}, which is not below {pathlib.Path.cwd()}" if strange else code)
"""
"""The command line, with the modules of one checkout and no other."""
INSTALLED = """
import json
from importlib.metadata import entry_points
print(json.dumps([entry.dist.name for entry in entry_points(group="rlcore") if entry.dist]))
"""


class NotComparedError(Exception):
    """Why no run could be made, in one sentence."""


@dataclass(frozen=True)
class Side:
    """One of the two codes. ``python``: the interpreter, with the libraries that it imports; ``site``: where its plugins are declared."""

    checkout: Path
    python: Path
    site: Path

    def run(self, *words: str) -> None:
        """Run the command line of the checkout with its own plugins, whichever are installed; NotComparedError unless it ends well."""
        done = subprocess.run(
            [self.python, "-c", RUN, *words], cwd=self.checkout, env=self._environment(), stdout=subprocess.PIPE, text=True, check=False
        )
        if done.returncode:
            raise NotComparedError(
                f"{self.checkout}: rlcore {' '.join(words)} ended with exit code {done.returncode}, as it says above\n{done.stdout}"
            )

    def _environment(self) -> dict[str, str]:
        projects = projects_of(self.checkout)
        path = [str(self.site), *map(str, projects)]
        for project in projects.values():
            declare(project, self.site)
        ours = {normal(project["name"]) for project in projects.values()}
        try:
            told = subprocess.run([self.python, "-c", INSTALLED], cwd=self.site, stdout=subprocess.PIPE, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError) as error:
            raise NotComparedError(f"{self.python} does not run ({error}); name the interpreter of an environment") from error
        others = [name for name in json.loads(told) if normal(name) not in ours]
        paths = {"PYTHONPATH": os.pathsep.join(path), "RLCORE_DISABLE": ",".join(sorted(set(others)))}
        return {**os.environ, **paths, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def main() -> int:
    """Run both, compare, report."""
    args = _arguments()
    try:
        commit, reason = (args.commit, "") if args.commit else base(BASE)
        with tempfile.TemporaryDirectory(prefix="rlcore-same-") as name:
            folder = Path(name)
            before = Side(_checked_out(commit, folder / "other"), args.before_python, folder / "site-before")
            after = Side(ROOT, args.after_python, folder / "site-after")
            assets = [args.before_assets, args.after_assets]
            if None in assets:
                after.run("quickstart", str(folder / "demo"), "--max-steps", "1", "--max-staleness", "0")
            told, codes = {"commit": commit, "reason": reason, "steps": args.steps}, []
            for runtime in args.runtime or ["auto"]:
                runs = [
                    trained(side, given or folder / "demo", folder / f"{label}-{runtime}", args.steps, WORDS[runtime])
                    for side, given, label in zip((before, after), assets, ("before", "after"), strict=True)
                ]
                codes.append(report(runs[0], runs[1], {**told, "runtime": runtime}))
            return max(codes)
    except NotComparedError as error:
        print(error, file=sys.stderr)
        return 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", nargs="?", help="the commit to compare with [that of same_numbers_base.toml]")
    parser.add_argument("--steps", type=int, default=20, help="updates of each run [20]")
    parser.add_argument("--runtime", action="append", choices=list(WORDS), help="may be given several times; a JSON object each [auto]")
    for side, code in (("before", "of the commit"), ("after", "of this checkout")):
        interpreter = f"interpreter whose libraries the code {code} imports [this one]"
        parser.add_argument(f"--{side}-python", type=Path, default=Path(sys.executable), metavar="FILE", help=interpreter)
        folder = f"folder of a quickstart that the code {code} trains in [one that this checkout makes]"
        parser.add_argument(f"--{side}-assets", type=_assets, metavar="FOLDER", help=folder)
    return parser.parse_args()


def _assets(text: str) -> Path:
    folder = Path(text).resolve()
    if absent := [name for name in ASSETS if not (folder / name).exists()]:
        raise argparse.ArgumentTypeError(f"{text} has no {absent[0]}; name a folder that rlcore quickstart made")
    return folder


def base(file: Path) -> tuple[str, str]:
    """(the commit to compare with, why it is that one); NotComparedError if the file does not say both."""
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise NotComparedError(f"{file} cannot be read: {error}") from error
    for key in ("commit", "reason"):
        if not isinstance(found.get(key), str) or not found[key].strip():
            raise NotComparedError(f'{file} has no {key}; write {key} = "..."')
    return found["commit"], found["reason"]


def _checked_out(commit: str, folder: Path) -> Path:
    clone = ["git", "clone", "--quiet", "--no-checkout", str(ROOT), str(folder)]
    for words in (clone, ["git", "-C", str(folder), "checkout", "--quiet", commit]):
        if subprocess.run(words, check=False).returncode:
            raise NotComparedError(f"commit {commit} cannot be checked out of {ROOT}, as git says above; name one that git log shows")
    return folder


# --- what a checkout declares


def projects_of(checkout: Path) -> dict[Path, dict[str, Any]]:
    """The folder of each distribution of a checkout -> its table [project]; the core comes first."""
    files = [checkout / "pyproject.toml", *sorted(checkout.glob("plugins/*/*/pyproject.toml"))]
    projects = {file.parent: tomllib.loads(file.read_text(encoding="utf-8"))["project"] for file in files}
    (version,) = re.findall(r'^__version__ = "(.+)"$', (checkout / "rlcore" / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE)
    return {folder: {"version": version, **project} for folder, project in projects.items()}  # the core's is not in its pyproject.toml


def declare(project: dict[str, Any], site: Path) -> None:
    """Write what an installation of the distribution would say of it: name, version, requirements, entry points."""
    folder = site / f"{normal(project['name']).replace('-', '_')}-{project['version']}.dist-info"
    folder.mkdir(parents=True, exist_ok=True)
    fields = [("Metadata-Version", "2.1"), ("Name", project["name"]), ("Version", project["version"])]
    fields += [("Requires-Dist", text) for text in project.get("dependencies", [])]
    (folder / "METADATA").write_text("".join(f"{name}: {value}\n" for name, value in fields), encoding="utf-8")
    groups = {**project.get("entry-points", {}), "console_scripts": project.get("scripts", {})}
    tables = (f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items()) for group, entries in groups.items())
    (folder / "entry_points.txt").write_text("\n".join(tables), encoding="utf-8")


def normal(name: str) -> str:
    """The name of a distribution as package indexes compare it."""
    return name.lower().replace("_", "-").replace(".", "-")


# --- what a run leaves


def trained(side: Side, assets: Path, runs: Path, steps: int, words: Sequence[str] = ()) -> Path:
    """The run folder of a run with the code of ``side``. Paths are typed, because older codes look for those of a file in the working
    folder."""
    held_out = json.dumps({"sort": str(assets / "heldout.jsonl")})
    paths = ("-m", str(assets / "base"), "-d", str(assets / "train.jsonl"), "-ed", held_out, "--run-dir", str(runs))
    side.run("train", str(assets / "run.toml"), "--max-steps", str(steps), "--eval-interval", "5", "--max-staleness", "0", *paths, *words)
    return next(runs.glob("*/*"))


def report(before: Path, after: Path, told: dict[str, Any]) -> int:
    """Print each difference, the new figures, and the JSON object; the exit code."""
    different = list(differences(before, after))
    new = sorted({name for row in _rows(after) for name in row} - {name for row in _rows(before) for name in row})
    if not any(_rows(before)) or not _tensors(before):
        different.append(f"{before} has no figures or no weights: nothing was compared")
    for line in different:
        print(line)
    if new:
        print(f"only after: {', '.join(new)}")
    figures = {"figures_compared": sum(map(len, _rows(before))), "weights": _weights(before)}
    print(json.dumps({**told, **figures, "new": new, "equal": not different, "different": len(different)}))
    return 1 if different else 0


def differences(before: Path, after: Path) -> Iterator[str]:
    """A line for each figure and tensor that is not equal, or that only ``before`` has; for each tensor that only ``after`` has, too."""
    rows, ours = _rows(before), _rows(after)
    if len(rows) != len(ours):
        yield f"metrics.jsonl has {len(rows)} lines before, {len(ours)} after"
    for first, second in zip(rows, ours, strict=False):
        for name, value in first.items():
            if name not in second:
                yield f"step {first.get('step')}: {name} is {value} before, and missing after"
            elif value != second[name]:
                yield f"step {first.get('step')}: {name} is {value} before, {second[name]} after"
    tensors, our_tensors = _tensors(before), _tensors(after)
    for name in sorted(tensors.keys() | our_tensors.keys()):
        if tensors.get(name) != our_tensors.get(name):
            yield f"tensor {name} differs"


def _rows(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl, times left out."""
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    return [{name: value for name, value in row.items() if not name.startswith(TIMES)} for row in rows]


def _tensors(run: Path) -> dict[str, str]:
    """Tensor -> digest of dtype, shape and bytes, of the last checkpoint."""
    from safetensors.numpy import load_file

    [file] = (run / "checkpoints" / (run / "checkpoints" / "latest").read_text().strip() / "model").glob("*.safetensors")
    return {
        name: hashlib.sha256(f"{value.dtype} {value.shape} ".encode() + value.tobytes()).hexdigest()
        for name, value in load_file(file).items()
    }


def _weights(run: Path) -> str:
    return hashlib.sha256(json.dumps(_tensors(run), sort_keys=True).encode()).hexdigest()


if __name__ == "__main__":
    sys.exit(main())
