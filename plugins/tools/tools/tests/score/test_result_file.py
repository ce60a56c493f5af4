"""The result file is whole, or is called partial."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from rlcore_plugin_tools.score.items import TextVerdict
from rlcore_plugin_tools.score.results import ResultFile

from rlcore.api import DataError, RunError, Score, UsageError


def write(folder: Path, error: BaseException | None = None) -> None:
    with ResultFile(folder / "out.jsonl", folder / "in.jsonl") as results:
        results.add(TextVerdict(line=1, source="f:1", score=Score(value=1.0, reason="\ud800")))
        assert not (folder / "out.jsonl").exists() or (folder / "out.jsonl").read_text() == "old"
        if error is not None:
            raise error


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_whole_file_replaces_an_old_one(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("old")
    write(tmp_path)
    assert json.loads((tmp_path / "out.jsonl").read_text(encoding="utf-8"))["value"] == 1.0
    assert names(tmp_path) == ["out.jsonl"]


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RunError("the pool broke down")], ids=["ctrl-c", "run"])
def test_what_was_judged_before_a_stop_is_kept_as_partial(error: BaseException, tmp_path: Path) -> None:
    with pytest.raises(type(error)):
        write(tmp_path, error)
    assert names(tmp_path) == ["out.jsonl.partial", "out.jsonl.partial.json"]
    assert (tmp_path / "out.jsonl.partial").read_text(encoding="utf-8").count("\n") == 1


def test_a_refusal_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(DataError):
        write(tmp_path, DataError("row 7"))
    assert names(tmp_path) == []


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("folder", "is a folder"),
        ("absent/out.jsonl", "there is no folder"),
        ("pipe", "not a regular file"),
        ("in.jsonl", "overwrite"),
        ("link", "overwrite"),
    ],
)
def test_a_place_that_cannot_be_written_is_refused_before_anything_is(out: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "in.jsonl").write_text("data")
    (tmp_path / "link").symlink_to(tmp_path / "in.jsonl")
    os.mkfifo(tmp_path / "pipe")
    before = names(tmp_path)
    with pytest.raises(UsageError, match=said):
        ResultFile(tmp_path / out, tmp_path / "in.jsonl")
    assert names(tmp_path) == before
    assert (tmp_path / "in.jsonl").read_text() == "data"
