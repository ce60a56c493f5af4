"""Writes the quickstart's folder: ``train.jsonl``, ``heldout.jsonl``, ``base/``, ``run.toml`` and a marker of the written files.

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

from rlcore.api import UsageError
from rlcore.api.commands import install_line
from rlcore_plugin_quickstart.recipe import N_HELDOUT, N_TRAIN, RECIPE_VERSION, run_toml
from rlcore_plugin_quickstart.task import Problem, Split, make_split

__all__ = ["MARKER", "Assets", "default_folder", "prepare", "seed_of"]

MARKER = "quickstart.json"
EDITABLE = "run.toml"
"""The only file that the user may change."""
Report = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Assets:
    """The paths of all files; ``reused``: the folder was there already."""

    folder: Path
    reused: bool

    @property
    def run_toml(self) -> Path:
        """The configuration to train with."""
        return self.folder / EDITABLE


def default_folder(seed: int) -> Path:
    """Return ``quickstart``, or ``quickstart-3`` for seed 3: each seed has its own model and data."""
    return Path("quickstart" if seed == 0 else f"quickstart-{seed}")


def seed_of(folder: Path) -> int | None:
    """Return the seed that a folder was made with, None if it does not contain a quickstart."""
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        return int(marker["seed"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def prepare(folder: Path, seed: int | None, report: Report) -> Assets:
    """Make the folder, or reuse it if it contains exactly this seed's quickstart (any seed's, if ``seed`` is None).

    Raises ``UsageError`` and writes nothing if it contains anything else. ``report`` receives a line of progress now and then.
    """
    if _occupied(folder):
        made_with = seed_of(folder)
        _check_reusable(folder, made_with if seed is None else seed)
        report(f"{folder}: made earlier with seed {made_with}; reused unchanged")
        return Assets(folder, reused=True)
    seed = seed or 0
    aside = folder.with_name(f".{folder.name}.{os.getpid()}.making")
    try:
        _make_folder(aside)
        _write(aside, folder, seed, report)
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


def _check_reusable(folder: Path, seed: int | None) -> None:
    hint = "name another folder (rlcore quickstart DIR), or remove this one"
    try:
        marker = json.loads((folder / MARKER).read_text(encoding="utf-8"))
        version, made_with, files = marker["recipe"], marker["seed"], dict(marker["files"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder}: contains something other than a quickstart; {hint}") from error
    if version != RECIPE_VERSION:
        raise UsageError(f"{folder}: made by another version of the quickstart ({version}, this is {RECIPE_VERSION}); {hint}")
    if made_with != seed:
        raise UsageError(f"{folder}: contains the quickstart of seed {made_with}, not of seed {seed}; {hint}")
    for name, expected in files.items():
        if not (folder / name).is_file() or _sha256(folder / name) != expected:
            raise UsageError(f"{folder / name}: changed since the quickstart wrote it; {hint}")
    if not (folder / EDITABLE).is_file():
        raise UsageError(f"{folder / EDITABLE}: missing; {hint}")


def _write(aside: Path, folder: Path, seed: int, report: Report) -> None:
    split = make_split(seed, N_TRAIN, N_HELDOUT)
    _write_jsonl(aside / "train.jsonl", split.train)
    _write_jsonl(aside / "heldout.jsonl", split.heldout)
    report(f"{len(split.train)} problems to train on, {len(split.heldout)} held out; making a base model …")
    _write_base(aside / "base", split, seed, report)
    (aside / EDITABLE).write_text(run_toml(folder, seed), encoding="utf-8")
    files = {path.relative_to(aside).as_posix(): _sha256(path) for path in sorted(aside.rglob("*")) if path.is_file()}
    del files[EDITABLE]
    marker = {"recipe": RECIPE_VERSION, "seed": seed, "files": files}
    (aside / MARKER).write_text(json.dumps(marker, indent=2) + "\n", encoding="utf-8")


def _write_jsonl(path: Path, problems: Iterable[Problem]) -> None:
    path.write_text("".join(json.dumps(problem.row()) + "\n" for problem in problems), encoding="utf-8")


def _write_base(base: Path, split: Split, seed: int, report: Report) -> None:
    try:
        from rlcore_plugin_quickstart.digits_tokenizer import build_tokenizer, check_round_trip
        from rlcore_plugin_quickstart.warmstart import WarmStartSettings, save_model, warm_start
    except ModuleNotFoundError as error:
        raise UsageError(f"the quickstart needs {error.name}; type: {install_line('rlcore[quickstart]')}") from error
    tokenizer = build_tokenizer()
    started = warm_start(split.train, tokenizer, seed, WarmStartSettings(), report)
    save_model(started.model, base)
    tokenizer.save_pretrained(base)
    check_round_trip(base)
    report(f"base model: {started.steps} steps of supervised learning, correct on {started.accuracy:.0%} of its training problems")


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
