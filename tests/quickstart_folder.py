"""The folder of a quickstart for tests that train in it; its base model is made once for all processes of the tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.assets import prepare
from rlcore_plugin_quickstart.recipe import TASKS, run_toml

from tests.made_once import made_once


def quickstart_in(
    folder: Path, factory: pytest.TempPathFactory, *, train: int | None = None, heldout: int | None = None, task: str = "sort"
) -> Path:
    """What ``prepare(folder, 0)`` writes, copied, for it trains a model for seconds; returns the folder. ``train``, ``heldout``: as many
    rows of the file, for a test whose subject is not what is learned; else each run reads two thousand, and evaluates two hundred."""
    shutil.copytree(quickstart_of(task, factory), folder)
    for name, rows in (("train.jsonl", train), ("heldout.jsonl", heldout)):
        lines = (folder / name).read_text(encoding="utf-8").splitlines(keepends=True)
        (folder / name).write_text("".join(lines[:rows]), encoding="utf-8")
    (folder / "run.toml").write_text(run_toml(folder, 0, task=TASKS[task]), encoding="utf-8")
    return folder


def quickstart_of(task: str, factory: pytest.TempPathFactory) -> Path:
    """What ``rlcore quickstart`` writes for a task, such as "tools", made once: only read it."""
    return made_once(f"quickstart-{task}", lambda made: prepare(made, 0, lambda line: None, TASKS[task]), factory)
