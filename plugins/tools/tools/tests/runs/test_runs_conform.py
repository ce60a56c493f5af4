"""The three commands obey the rules of every command."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools import rlcore_register_commands

from rlcore.testing import RunTester, check_command
from tests.written_runs import a_rollout, an_update, write_run

WORDS = {"runs": (), "compare": ("runs/p/a", "runs/p/b"), "rollouts": ("runs/p/a",)}


@pytest.mark.parametrize("spec", [spec for spec in rlcore_register_commands() if spec.name in WORDS], ids=lambda spec: spec.name)
def test_the_command_conforms(tmp_path: Path, spec) -> None:
    for name in "ab":
        write_run(tmp_path / "runs" / "p" / name, metrics=[an_update(1, 0.5)], rollouts={1: [a_rollout()]})
    check_command(spec, RunTester(tmp_path, in_process=True), *WORDS[spec.name])
