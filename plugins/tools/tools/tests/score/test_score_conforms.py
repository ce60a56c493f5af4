"""``rlcore score`` and ``rlcore audit`` obey the rules of every command."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools import rlcore_register_commands

from rlcore.testing import RunTester, check_command

SPECS = {spec.name: spec for spec in rlcore_register_commands()}
ROW = {"messages": {"role": "user", "content": "say 41"}, "gt_answer": "41", "completion": "41"}


@pytest.mark.parametrize(
    ("name", "words"),
    [("score", ("rows.jsonl", "--reward", "fake", "--workers", "1")), ("audit", ("--reward", "fake", "--data", "rows.jsonl"))],
)
def test_the_commands_conform(name: str, words: tuple[str, ...], tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write_jsonl("rows.jsonl", [ROW])
    check_command(SPECS[name], tester, *words)
