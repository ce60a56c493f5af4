"""Writes the quickstart's folder: ``train.jsonl``, ``heldout.jsonl``, ``base/``, ``run.toml``, files of the task, and a marker.

Everything is made in another folder and moved into place in one step, so a folder is either complete or absent. A complete one is reused.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rlcore.api import UsageError
from rlcore.api.commands import install_line
from rlcore_plugin_quickstart.recipe import N_TRAIN, RECIPE_VERSION, SORT, TASKS, QuickstartTask, run_toml, source
from rlcore_plugin_quickstart.task import Split

__all__ = ["MARKER", "Assets", "default_folder", "made_for", "prepare"]

MARKER = "quickstart.json"
CONFIGURATION = "run.toml"
"""The user may change this file, and the environment of the task."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Assets:
    """The paths of all files; ``reused``: the folder was there already."""

    folder: Path
    reused: bool

    @property
    def run_toml(self) -> Path:
        """The configuration to train with."""
        return self.folder / CONFIGURATION


def default_folder(seed: int, task: QuickstartTask = SORT) -> Path:
    """Return ``quickstart``, ``quickstart-3`` for seed 3, ``quickstart-tools`` for the task tools: each has its own model and data."""
    return Path("-".join(["quickstart", *([task.name] if task is not SORT else []), *([str(seed)] if seed else [])]))


def made_for(folder: Path) -> tuple[int, QuickstartTask] | None:
    """Return the seed and the task that a folder was made with, None if it does not contain a quickstart."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return int(marker["seed"]), TASKS[marker.get("task", SORT.name)]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def prepare(folder: Path, seed: int | None, report: Report, task: QuickstartTask | None = SORT) -> Assets:
    """Make the folder, or reuse it if it contains the quickstart of this seed and task; None: of any.

    Raises ``UsageError`` and writes nothing if it contains anything else. ``report`` receives a line of progress now and then.
    """
    if _occupied(folder):
        made_with = _check_reusable(folder, seed, task)
        report(f"{folder}: made earlier with seed {made_with}; reused unchanged")
        return Assets(folder, reused=True)
    seed, task = seed or 0, task or SORT
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.making")
    try:
        _make_folder(aside)
        _write(aside, folder, seed, task, report)
        aside.rename(folder)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be written ({error.strerror or error}); name another folder: rlcore quickstart DIR") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return Assets(folder, reused=False)


def _occupied(folder: Path) -> bool:
    if folder.is_dir():
        return any(folder.iterdir())
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder}: a file is in the way; name another folder: rlcore quickstart DIR")
    if not folder.name:
        raise UsageError(f"{folder}: not the name of a folder; name one: rlcore quickstart DIR")
    return False


def _make_folder(aside: Path) -> None:
    shutil.rmtree(aside, ignore_errors=True)
    aside.mkdir(parents=True)


def _check_reusable(folder: Path, seed: int | None, task: QuickstartTask | None) -> int:
    """Return the seed that the folder was made with."""
    hint = "name another folder (rlcore quickstart DIR), or remove this one"
    made = made_for(folder)
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        version, files = marker["recipe"], dict(marker["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: contains something other than a quickstart; {hint}") from error
    if made is None or version != made[1].version:
        ours = made[1].version if made else RECIPE_VERSION
        raise UsageError(f"{folder}: made by another version of the quickstart ({version}, this is {ours}); {hint}")
    if seed not in (None, made[0]):
        raise UsageError(f"{folder}: contains the quickstart of seed {made[0]}, not of seed {seed}; {hint}")
    if task not in (None, made[1]):
        raise UsageError(f"{folder}: contains the quickstart of task {made[1].name}, not of task {task.name}; {hint}")
    for name, expected in files.items():
        if not (folder / name).is_file() or _sha256(folder / name) != expected:
            raise UsageError(f"{folder / name}: changed since the quickstart wrote it; {hint}")
    for name in _editable(made[1]):
        if not (folder / name).is_file():
            raise UsageError(f"{folder / name}: missing; {hint}")
    return made[0]


def _editable(task: QuickstartTask) -> list[str]:
    return [CONFIGURATION, *([task.file] if task.file else [])]


def _write(aside: Path, folder: Path, seed: int, task: QuickstartTask, report: Report) -> None:
    split = task.split(seed, N_TRAIN, task.n_heldout)
    _write_jsonl(aside / "train.jsonl", split.train)
    _write_jsonl(aside / "heldout.jsonl", split.heldout)
    report(f"{len(split.train)} problems to train on, {len(split.heldout)} held out; making a base model …")
    _write_base(aside / "base", split, seed, task, report)
    files = {path.relative_to(aside).as_posix(): _sha256(path) for path in sorted(aside.rglob("*")) if path.is_file()}
    (aside / CONFIGURATION).write_text(run_toml(folder, seed, task=task), encoding="utf-8")
    if task.file:
        shutil.copyfile(source(task), aside / task.file)
    marker = {"recipe": task.version, "seed": seed, "task": task.name, "files": files}
    (aside / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


def _write_jsonl(path: Path, problems: Iterable[Any]) -> None:
    path.write_text("".join(json.dumps(problem.row()) + "\n" for problem in problems), encoding="utf-8")


def _write_base(base: Path, split: Split[Any], seed: int, task: QuickstartTask, report: Report) -> None:
    try:
        from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer, check_round_trip
        from rlcore_plugin_quickstart.warmstart import WarmStartSettings, save_model, warm_start
    except ModuleNotFoundError as error:
        raise UsageError(f"the quickstart needs {error.name}; type: {install_line('rlcore[quickstart]')}") from error
    tokenizer = build_tokenizer(tools=bool(task.tools), words=task.words)
    lessons = task.split(seed, task.n_lessons, task.n_heldout).train if task.n_lessons else split.train
    started = warm_start(lessons, tokenizer, seed, WarmStartSettings(**task.warm_start), report, task.tools)
    save_model(started.model, base)
    tokenizer.save_pretrained(base)
    check_round_trip(base, tools=bool(task.tools), words=task.words)
    report(f"base model: {started.steps} steps of supervised learning, correct on {started.accuracy:.0%} of its training problems")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
