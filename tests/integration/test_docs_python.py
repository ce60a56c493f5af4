"""The program of docs/how_to/python.md runs, on the fakes of the kit: they replace the model, the engine and the trainer that it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import rlcore
from rlcore.testing import RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "python.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"<!-- test: program -->\n```python\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


def test_the_program_trains_evaluates_scores_and_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    fakes, train = tester.fake_run(), rlcore.train
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(rlcore, "train", lambda **given: train(fakes, **{**given, "model": "model", "progress": False, "eval_interval": 1}))
    found: dict[str, Any] = {"__name__": "a_program"}
    with tester.plugins:
        for block in BLOCKS:
            exec(block, found)
    assert len(BLOCKS) == 3
    assert found["summary"].steps == 3
    assert found["verdicts"][0]["value"] == 10.0
    assert len(found["found"].rows) == 64 * 4
    assert str(found["summary"].run) in capsys.readouterr().out
