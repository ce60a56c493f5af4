"""What a run writes is whole or not there, and JSON that any reader takes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.runlog import RunFolder
from rlcore.runlog.files import append_json_line, write_json, write_text


def folder(tmp_path: Path, **moved: Path | None) -> RunFolder:
    places = {"save_dir": None, "eval_save_dir": None, "rollout_save_dir": None, **moved}
    return RunFolder.create(tmp_path / "runs", "project", **places)


def test_a_failed_write_leaves_the_old_file(tmp_path: Path) -> None:
    write_text(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(tmp_path / "a.txt", "\ud800")
    assert (tmp_path / "a.txt").read_text() == "old"


def test_figures_that_are_not_numbers_become_null(tmp_path: Path) -> None:
    write_json(tmp_path / "a.json", {"x": float("nan"), "y": [float("inf")], "p": Path("q")})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": None, "y": [None], "p": "q"}


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    assert folder(tmp_path).root != folder(tmp_path).root


def test_moved_parts_go_to_a_sub_folder_named_like_the_run(tmp_path: Path) -> None:
    made = folder(tmp_path, save_dir=tmp_path / "saved", rollout_save_dir=tmp_path / "rolled")
    assert made.checkpoints == tmp_path / "saved" / made.root.name
    assert made.rollouts == tmp_path / "rolled" / made.root.name
    assert made.evaluations == made.root / "eval"


def test_logs_and_tables_land_where_the_architecture_says(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.log_metrics({"step": 1, "loss": 0.5})
    made.log_metrics({"step": 2, "loss": 0.25})
    made.write_rollouts(2, [{"text": "é"}])
    made.write_evaluation("task", 2, [{"prompt": "x"}])
    assert [json.loads(line)["step"] for line in (made.root / "metrics.jsonl").read_text().splitlines()] == [1, 2]
    assert json.loads((made.root / "rollouts" / "step-2.jsonl").read_text()) == {"text": "é"}
    assert (made.root / "eval" / "task" / "step-2.jsonl").exists()


def test_times_are_a_row_a_step_and_one_of_the_whole_run(tmp_path: Path) -> None:
    made = folder(tmp_path)
    made.log_times({"producer-0": {"compute": 1 / 3}}, 1)
    made.log_times({"producer-0": {"compute": 2.0}})
    assert [json.loads(line) for line in (made.root / "times.jsonl").read_text().splitlines()] == [
        {"step": 1, "workers": {"producer-0": {"compute": 0.333333}}},
        {"total": True, "workers": {"producer-0": {"compute": 2.0}}},
    ]


def test_lines_are_appended_whole(tmp_path: Path) -> None:
    append_json_line(tmp_path / "log", {"a": 1})
    append_json_line(tmp_path / "log", {"a": 2})
    assert (tmp_path / "log").read_text() == '{"a": 1}\n{"a": 2}\n'
