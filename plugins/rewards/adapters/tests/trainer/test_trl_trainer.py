"""TRL's own trainer drives rewards of rlcore for three steps, in the environment of TRL.

`make test-trl` builds the environment and names its interpreter in RLCORE_TEST_TRL; without that this test is skipped.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from statistics import fmean

import pytest

PYTHON = os.environ.get("RLCORE_TEST_TRL", "")


@pytest.mark.skipif(not PYTHON, reason="needs the environment of TRL, named in RLCORE_TEST_TRL: make test-trl")
def test_three_steps_of_the_trainer(tmp_path: Path) -> None:
    program = Path(__file__).with_name("three_steps.py")
    done = subprocess.run([PYTHON, str(program), str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout.strip().splitlines()[-1])
    seen = told["seen"]
    assert (told["steps"], len(seen), len(told["logged"])) == (3, 24, 3)
    assert [value for text, value in seen] == [None if len(text) % 2 == 0 else pytest.approx(len(text) / 10) for text, _ in seen]
    for step, record in enumerate(told["logged"]):
        values = [value for _, value in seen[8 * step : 8 * step + 8]]
        judged = [value for value in values if value is not None]
        assert record["reward"] == pytest.approx(fmean(judged), abs=1e-4), "a response without a verdict must not lower the mean"
        assert record["boxed+hangs/no_verdict"] == pytest.approx(1 - len(judged) / 8, abs=1e-3)
    assert any(value is None for _, value in seen)
    assert "have no verdict" in done.stderr


@pytest.mark.skipif(not PYTHON, reason="needs the environment of TRL, named in RLCORE_TEST_TRL: make test-trl")
def test_the_page_for_users_of_trl_names_fields_that_trl_has() -> None:
    page = Path(__file__).parents[5] / "docs" / "coming_from" / "trl.md"
    program = Path(__file__).with_name("names_of_the_page.py")
    done = subprocess.run([PYTHON, str(program), str(page)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.strip().splitlines()[-1]) == []
