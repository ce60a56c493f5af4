"""Whole runs that train with functions written for TRL and verl: rows, token ids, groups, metrics."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

HERE = Path(__file__).parent
TRL = """
def tokens_and_column(prompts, completions, completion_ids, gt_answer, log_metric, **kwargs):
    assert len(prompts) == len(completions) == len(completion_ids) == len(gt_answer) == SIZE
    assert prompts[0][-1]["role"] == "user" and completions[0][0]["role"] == "assistant"
    assert all(len(ids) > 0 for ids in completion_ids)
    log_metric("calls", 1.0)
    return [None if index == 0 and SIZE > 1 else float(len(ids)) for index, ids in enumerate(completion_ids)]
"""
VERL = """
def compute_score(data_source, solution_str, ground_truth, extra_info=None):
    assert data_source == "mine" and extra_info == {}
    return {"score": float(len(solution_str)), "acc": solution_str[:1] == ground_truth[:1]}
"""


def trained(folder: Path, source: str, table: str) -> list[dict[str, Any]]:
    """The metrics of a run on fakes."""
    tester = RunTester(folder).with_fakes()
    tester.fake_run()
    tester.write("mine.py", source)
    tester.write("more.toml", f"[schedule]\nreward_error_budget = 0.0\n[[rewards]]\n{table}")
    done = tester.run("train", "run.toml", "more.toml")
    assert done.exit_code == 0, done.stdout + done.stderr
    (path,) = tester.folder.rglob("metrics.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("batch", "size"), [("single", 1), ("group", 8)])
def test_a_run_with_a_function_of_trl(tmp_path: Path, batch: str, size: int) -> None:
    options = f'{{ function = "./mine.py:tokens_and_column", batch = "{batch}" }}'
    records = trained(tmp_path, TRL.replace("SIZE", str(size)), f'name = "trl_function"\noptions = {options}\n')
    assert any(record.get("reward/mean", 0.0) > 0.0 for record in records)


def test_a_run_with_a_function_of_verl(tmp_path: Path) -> None:
    options = '{ function = "./mine.py:compute_score", data_source = "mine" }'
    records = trained(tmp_path, VERL, f'name = "verl_function"\noptions = {options}\n')
    assert any(record.get("reward/mean", 0.0) > 0.0 for record in records)


def test_the_files_of_the_tests_are_refused_where_a_row_lacks_a_column(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    tester.fake_run()
    shutil.copy(HERE / "trl_functions.py", tester.folder / "mine.py")
    tester.write("more.toml", '[[rewards]]\nname = "trl_function"\noptions = { function = "./mine.py:box_is_right" }\n')
    done = tester.run("train", "run.toml", "more.toml")
    assert done.exit_code == 2
    assert "needs the column solution" in done.stderr
