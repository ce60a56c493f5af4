"""The file of ``--out``, the lines that say how far an evaluation is, and the names of tasks."""

from __future__ import annotations

from collections.abc import Iterator
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console
from rlcore_plugin_tools.eval.eval_plan import task_names
from rlcore_plugin_tools.eval.eval_progress import completions_shown
from rlcore_plugin_tools.eval.row_file import RowFile


def test_a_file_that_is_interrupted_stays_the_old_one(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text("old\n")

    def rows() -> Iterator[dict[str, int]]:
        yield {"index": 0}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        RowFile(path).write(rows())
    assert [(left.name, left.read_text()) for left in tmp_path.iterdir()] == [("rows.jsonl", "old\n")]


def test_a_line_now_and_then_where_there_is_no_terminal() -> None:
    clock, written = iter([0.0, 9.0, 11.0, 12.0, 30.0]), StringIO()
    with completions_shown(Console(file=written, width=80), lambda: next(clock)) as shown:
        for done in range(5):
            shown(done, 4)
    assert written.getvalue().splitlines() == ["2 of 4 completions judged, about 11.0 s left", "4 of 4 completions judged"]


def test_tasks_are_called_like_their_files() -> None:
    paths = ("a/aime.2024.jsonl", "gsm8k.jsonl.gz", "b/aime.2024.jsonl", "hf:org/name", "table.parquet")
    assert list(task_names(paths, {"gsm8k": "x"})) == ["aime.2024", "gsm8k-2", "aime.2024-2", "name", "table"]
