"""The folder of a quickstart for tests that train in it; its base model is made once for all processes of the tests."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from rlcore_plugin_quickstart.assets import prepare
from rlcore_plugin_quickstart.recipe import run_toml

from tests.made_once import made_once


def quickstart_in(folder: Path, factory: pytest.TempPathFactory) -> Path:
    """What ``prepare(folder, 0)`` writes, copied, for it trains a model for seconds; returns the folder."""
    shutil.copytree(made_once("quickstart", lambda made: prepare(made, 0, lambda line: None), factory), folder)
    (folder / "run.toml").write_text(run_toml(folder, 0), encoding="utf-8")
    return folder
