"""Whole runs that train with functions written for TRL and verl: rows, token ids, groups, metrics."""

from __future__ import annotations

import json
import shutil
import tomllib
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


@pytest.mark.parametrize(
    ("reward", "option", "file", "text"),
    [
        ("trl_function", "./mine.py:tokens_and_column", "mine.py", TRL.replace("SIZE", "1")),
        ("verl_function", "./mine.py:compute_score", "mine.py", VERL.replace('data_source == "mine"', 'data_source == ""')),
        ("json_schema", "schema.json", "schema.json", '{"type": "object"}'),
    ],
)
def test_a_file_named_in_one_folder_is_found_from_another(tmp_path: Path, reward: str, option: str, file: str, text: str) -> None:
    here, elsewhere = RunTester(tmp_path / "here").with_fakes(), RunTester(tmp_path / "elsewhere").with_fakes()
    config = here.fake_run(run={"num_episodes": 4})
    path, key = here.write(file, text), "file" if reward == "json_schema" else "function"
    here.write("more.toml", f'[[rewards]]\nname = "{reward}"\noptions = {{ {key} = "{option}" }}\n')
    here.run("train", config, "more.toml").assert_ok()
    (run,) = here.folder.glob("runs/*/*")
    settings = tomllib.loads((run / "run.toml").read_text("utf-8"))
    assert settings["rewards"][0]["options"][key] == str(path.resolve()) + option.removeprefix("./").removeprefix(file)
    elsewhere.run("resume", str(run), "--max-steps", "4").assert_ok()
