"""Files of a run that are nested without end: whoever begins again where it ended names them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rlcore.api import ConfigError
from rlcore.config.resume_rules import settings_of
from rlcore.runlog import RunFolder
from rlcore.runlog.past_runs import find_checkpoint


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    made = RunFolder.create(tmp_path, "project", save_dir=None, eval_save_dir=None, rollout_save_dir=tmp_path / "elsewhere")
    (made.root / "run.toml").write_text(f'[run]\nproject = "project"\n[log]\nrollout_save_dir = "{tmp_path / "elsewhere"}"\n')
    return made


def test_settings_of_a_run_that_are_nested_without_end_are_named(run: RunFolder) -> None:
    (run.root / "run.toml").write_text("a = " + "[" * 100_000)
    with pytest.raises(ConfigError, match=r"run\.toml cannot be read"):
        settings_of(run.root)


@pytest.mark.parametrize("name", ["checkpoint.json", "state.json"])
@pytest.mark.parametrize("nested", [True, False])
def test_a_checkpoint_that_is_nested_without_end_is_named(run: RunFolder, name: str, nested: bool) -> None:
    checkpoint = run.checkpoints / "step-1"
    checkpoint.mkdir()
    (checkpoint / "checkpoint.json").write_text('{"step": 1, "files": {}}')
    (checkpoint / name).unlink(missing_ok=True)
    if nested:
        (checkpoint / name).write_text("[" * 100_000)
    else:
        os.mkfifo(checkpoint / name)
    with pytest.raises(ConfigError, match=rf"{name} (cannot be understood|is damaged)"):
        find_checkpoint(run.root, 1)
