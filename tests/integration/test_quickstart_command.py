"""``rlcore quickstart`` as it is typed: in an empty folder; what makes or trains something in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from rlcore.host.threads import cores
from rlcore.testing import RunTester

PATIENCE = 1500.0
"""Seconds after which a run that learns is given up; it computes for one minute, and its machine may be doing ten other things."""
KEYS = {"accuracy_before", "accuracy_after", "train_seconds", "steps", "tokens_per_second", "run"}
COIN = """
import hashlib
from rlcore.api import Score

def coin(item):
    \"\"\"Pays at random, and still reports whether the answer is right.\"\"\"
    right = item.text.strip() == "\\\\boxed{" + item.columns["gt_answer"] + "}"
    paid = hashlib.sha256(repr((item.text, item.messages)).encode()).digest()[0] % 2
    return Score(value=10.0 * paid, accuracy=float(right), format_ok=True)
"""


def rlcore(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", "import sys; from rlcore.cli import main; sys.exit(main())", "quickstart", *words],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


def last_line(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def test_two_steps_in_a_folder_that_is_then_used_again(tmp_path: Path) -> None:
    first = RunTester(tmp_path).run("quickstart", "qs", "--max-steps", "2", "-tbs", "4", "--json").assert_ok().json
    assert set(first) >= KEYS
    assert (first["steps"], Path(first["run"]).parts[:2]) == (2, ("qs", "runs"))
    assert 0.1 < first["accuracy_before"] <= 0.6
    assert first["max_staleness"] == (cores() > 1)
    before = (tmp_path / "qs" / "base" / "model.safetensors").read_bytes()
    again = RunTester(tmp_path, in_process=True).run("quickstart", "qs", "--dry-run").assert_ok()
    assert again.lines[0] == "qs: made earlier with seed 0; reused unchanged"
    assert (tmp_path / "qs" / "base" / "model.safetensors").read_bytes() == before


@pytest.mark.full
def test_two_steps_with_a_calculator(tmp_path: Path) -> None:
    tester = RunTester(tmp_path)
    outcome = tester.run("quickstart", "--task", "tools", "--max-steps", "2", "-tbs", "4", "--json").assert_ok().json
    assert Path(outcome["run"]).parts[:2] == ("quickstart-tools", "runs")
    assert outcome["accuracy_before"] <= 0.6
    chats = tester.run("rollouts", outcome["run"], "--json").assert_ok().stdout
    assert "calculator" in chats


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["-lr", "-3"], "-lr -3: training.learning_rate"),
        (["-tMbs", "64"], "(quickstart/run.toml, line "),
        (["--seed", "one"], "--seed one"),
        (["-b", "no-such-engine"], "no-such-engine"),
        (["--no-such-flag"], "--no-such-flag is not an option of rlcore quickstart"),
        (["thesis"], "thesis: contains something other than a quickstart"),
    ],
)
def test_what_is_refused_is_one_sentence_and_nothing_is_written(tmp_path: Path, words: list[str], sentence: str) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("x", encoding="utf-8")
    RunTester(tmp_path, in_process=True).run("quickstart", *words).assert_refused(sentence)
    assert sorted(path.name for path in tmp_path.rglob("*")) == [".plugins", "chapter.tex", "thesis"]  # the first is the tester's


def test_a_dry_run_writes_nothing(tmp_path: Path) -> None:
    assert "quickstart/run.toml" in RunTester(tmp_path, in_process=True).run("quickstart", "--dry-run").assert_ok().stdout
    assert [path.name for path in tmp_path.rglob("*")] == [".plugins"]  # the tester's


@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize(
    "seed",
    [
        pytest.param("0", marks=pytest.mark.nightly),  # CI runs it by `make quickstart`, and looks at the same figures
        pytest.param("1", marks=pytest.mark.nightly),
        pytest.param("2", marks=pytest.mark.nightly),
    ],
)
def test_it_learns(tmp_path: Path, seed: str) -> None:
    outcome = last_line(rlcore(tmp_path, "--seed", seed, "--json"))
    assert outcome["accuracy_before"] <= 0.6
    assert outcome["accuracy_after"] >= 0.9
    assert outcome["steps"] == 100


@pytest.mark.nightly
@pytest.mark.timeout(PATIENCE + 60)
@pytest.mark.parametrize("seed", ["0", "1", "2"])
def test_it_learns_to_call_a_calculator(tmp_path: Path, seed: str) -> None:
    outcome = last_line(rlcore(tmp_path, "--task", "tools", "--seed", seed, "--json"))
    assert outcome["accuracy_before"] <= 0.6
    assert outcome["accuracy_after"] >= 0.9
    assert outcome["steps"] == 30


@pytest.mark.nightly
@pytest.mark.timeout(PATIENCE + 60)
def test_with_a_random_reward_it_does_not_learn(tmp_path: Path) -> None:
    (tmp_path / "coin.py").write_text(COIN, encoding="utf-8")
    outcome = last_line(rlcore(tmp_path, "-rt", "./coin.py:coin", "--max-steps", "40", "--json"))
    assert outcome["accuracy_after"] <= outcome["accuracy_before"] + 0.05
