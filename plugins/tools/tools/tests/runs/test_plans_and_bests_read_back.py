"""What a run planned and what was best in it, read back; lines that no run writes are refused with file and line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.api import ConfigError
from rlcore.api.runs import BestFigure

MANIFEST = {"rlcore": "0.1.0", "data": {}, "plugins": [], "origins": {}}
UPDATE = {"step": 1, "seconds": 1.0, "reward/mean": 0.5}


def a_record(root: Path, settings: str, manifest: Mapping[str, Any] | None = None, metrics: str = "") -> RunRecord:
    (root / "run.toml").write_text(settings)
    (root / "metrics.jsonl").write_text(metrics)
    if manifest is not None:
        (root / "manifest.json").write_text(json.dumps({**MANIFEST, **manifest}))
    return RunRecord(root)


@pytest.mark.parametrize(
    ("settings", "manifest", "planned"),
    [
        ("[run]\nmax_steps = 7\n", {"planned_steps": 9}, 7),
        ("", {"planned_steps": 9}, 9),
        ("", {"planned_steps": 9, "resumes": [{"planned_steps": 12}, {"step": 3}]}, 12),
        ("", {}, None),
        ("", None, None),
    ],
)
def test_how_many_updates_were_planned(tmp_path: Path, settings: str, manifest: Mapping[str, Any] | None, planned: int | None) -> None:
    assert a_record(tmp_path, settings, manifest).planned_steps == planned


@pytest.mark.parametrize(
    ("by", "best"),
    [
        ("accuracy", BestFigure("accuracy", 0.5, 4)),
        ("eval/b", BestFigure("eval/b", 0.8, 2)),
        ("min:eval/b", BestFigure("eval/b", 0.2, 0, lowest=True)),
        ("reward/mean", BestFigure("reward/mean", 0.5, 1)),
        ("eval/c", None),
    ],
)
def test_the_best_is_by_what_the_settings_name_the_last_among_equals(tmp_path: Path, by: str, best: BestFigure | None) -> None:
    rows = [{"step": 0, "eval/a": 0.2, "eval/b": 0.2}, UPDATE, {"step": 2, "eval/a": 0.2, "eval/b": 0.8}, {"step": 4, "eval/a": 0.5}]
    metrics = "".join(json.dumps(row) + "\n" for row in [*rows, {"step": 5, "eval/a": None}])
    assert a_record(tmp_path, f'[log]\nbest_by = "{by}"\n[eval.eval_dataset]\na = "a"\nb = "b"\n', metrics=metrics).best() == best


@pytest.mark.parametrize(
    ("line", "said"),
    [("[1]", "metrics.jsonl:2 is not a JSON object"), ('{"seconds": 1.0}', "has a line without a step"), ("{", ":2 is not JSON (")],
)
def test_a_line_that_no_run_writes_is_refused(tmp_path: Path, line: str, said: str) -> None:
    record = a_record(tmp_path, "", metrics=f"{json.dumps(UPDATE)}\n{line}\n")
    for read in (record.updates, record.evaluations, record.best):
        with pytest.raises(ConfigError) as error:
            read()
        assert said in str(error.value)
    (tmp_path / "metrics.jsonl").write_text(f"{json.dumps(UPDATE)}\n{line}")  # half a line is none
    assert record.updates() == [UPDATE]


def test_a_compressed_file_that_is_damaged_inside_is_refused(tmp_path: Path) -> None:
    record = a_record(tmp_path, "")
    (tmp_path / "rollouts").mkdir()
    (tmp_path / "rollouts" / "step-1.jsonl.gz").write_bytes(b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\x03" + b"\xff" * 20)
    with pytest.raises(ConfigError, match=r"step-1\.jsonl\.gz cannot be read"):
        list(record.rollouts(1))
