"""Which code a row of the learning table was made with: the commit, and a digest of every file that decides what a run learns.

Both come from git, so the digest of any commit can be computed again. The digest counts whole files: a new comment is other code.
"""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rlcore.contracts.errors import UsageError

_PATHS = ("rlcore", "plugins", "benchmarks/algorithms_plan.py", "benchmarks/coin.py", "constraints.txt")
_NOT_COUNTED = ("rlcore/testing/", "rlcore/cli/")
"""Parts of rlcore that decide nothing in a run: the kit for tests, and the command line, which prints."""
_SHORT = 12


@dataclass(frozen=True, slots=True)
class Source:
    """What a run is made with: the full hash of a commit, and the digest of the files that count at that commit."""

    commit: str
    code: str


def counts(path: str) -> bool:
    """True if the file, by its path from the root of the repository, decides what a run learns."""
    inside = any(path == part or path.startswith(f"{part}/") for part in _PATHS)
    is_test = path.startswith("plugins/") and "/tests/" in path
    return inside and path.endswith((".py", "constraints.txt")) and not path.startswith(_NOT_COUNTED) and not is_test


def read_source(root: Path) -> Source:
    """The source of a run that starts now in the checkout ``root``.

    UsageError if a file that counts differs from the last commit, or if ``root`` is only a folder inside another repository.
    """
    top = Path(_git(root, "rev-parse", "--show-toplevel")[0].removesuffix("\n"))
    if top.resolve() != root.resolve():  # git would answer for that repository, whose commits hold none of these files
        raise UsageError(f"{root} is not a repository of its own but lies inside {top}; run the benchmark in a clone of the repository")
    changed = [entry[3:] for entry in _git(root, "status", "--porcelain", "--no-renames", "--untracked-files=all", "-z", "--", *_PATHS)]
    if edited := sorted(path for path in changed if counts(path)):
        more = f" and {len(edited) - 1} more" if edited[1:] else ""
        remedy = "commit or git stash -u first"
        raise UsageError(f"{edited[0]}{more} differs from the last commit: a row names the commit that made it; {remedy}")
    commit = _git(root, "rev-parse", "HEAD")[0].strip()
    return Source(commit, code_of(root, commit))


def code_of(root: Path, commit: str) -> str:
    """The digest over paths and contents of the files that count at ``commit``."""
    entries = _git(root, "ls-tree", "-r", "-z", "--full-tree", commit, "--", *_PATHS)
    counted = sorted(entry for entry in entries if counts(entry.partition("\t")[2]))
    return hashlib.sha256("\0".join(counted).encode()).hexdigest()[:_SHORT]


def refuse_foreign(root: Path, modules: Mapping[str, ModuleType]) -> None:
    """UsageError if a module of rlcore or of a plugin is not of the checkout ``root``: the digest covers no other. ``modules`` by name."""
    places = (root.resolve() / "rlcore", root.resolve() / "plugins")  # .venv/ lies below the checkout, too, and may hold copies
    for name, module in sorted(modules.items()):
        top, file = name.partition(".")[0], getattr(module, "__file__", None)
        if (top == "rlcore" or top.startswith("rlcore_plugin_")) and file and not any(map(Path(file).resolve().is_relative_to, places)):
            raise UsageError(
                f"{name} is loaded from {file}, not from the checkout {root}; type `make env` there, and run the benchmark there"
            )


def _git(root: Path, *words: str) -> list[str]:
    """What git prints, cut at its NULs."""
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise UsageError("git is not installed: a row names the commit that made it; install git") from error
    if done.returncode:
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise UsageError(
            f"{root}: a row names the commit that made it, and git gives none: {told}; run the benchmark in a clone of the repository"
        )
    return [part for part in done.stdout.split("\0") if part]


def refuse_mixed(records: Sequence[Mapping[str, Any]], path: Path) -> None:
    """UsageError if the records are of more than one code, or only some of them say which."""
    if others := [record for record in records if record["code"] != records[0]["code"]]:
        first = f"line {_line(path, records[0])} ({_told(records[0])})"
        raise UsageError(
            f"{_place(path, others[0])}: of other code ({_told(others[0])}) than {first}; keep the lines of one, or type --fresh"
        )


def refuse_other(records: Sequence[Mapping[str, Any]], now: Source, path: Path) -> None:
    """UsageError if a record is of other code than ``now``."""
    if others := [record for record in records if record["code"] != now.code]:
        last = others[-1]
        ways = "continue at that commit, or type --fresh" if last["code"] else "type --fresh"
        found = f"{len(others)} of {len(records)} runs are of other code ({_told(last)})"
        raise UsageError(f"{_place(path, last)}: {found} than this checkout ({now.code}); {ways}")


def _told(record: Mapping[str, Any]) -> str:
    """For example "7c3f0a12b9de at 86615520b127"."""
    return f"{record['code'] or 'unknown'} at {record['commit'][:_SHORT]}"


def _place(path: Path, record: Mapping[str, Any]) -> str:
    """File and line; the file as short as it can be typed here."""
    return f"{path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}, line {_line(path, record)}"


def _line(path: Path, record: Mapping[str, Any]) -> int:
    """The number, from 1, of the last line of ``path`` that holds ``record``, which was read from there; a torn last line is none."""
    lines = path.read_bytes().split(b"\n")[:-1]
    return max(number for number, line in enumerate(lines, start=1) if json.loads(line) == record)
