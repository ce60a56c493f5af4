"""The progress of ``score`` and ``audit``: a bar on a terminal, lines elsewhere, always on standard error."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_tools.score import score_progress
from rlcore_plugin_tools.score.score_progress import progress, rows_of

from rlcore.api.commands import Registry, SteadyConsole


def test_lines_on_standard_error_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([100.0, 105.0, 111.0, 112.0, 130.0])
    monkeypatch.setattr(score_progress.time, "monotonic", lambda: next(clock))
    with progress(lambda: 100) as shown:
        for rows in (1, 22, 23, 60):
            shown.update(2 * rows, rows)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == [
        "44 completions judged, 4.0 a second, 22 of 100 rows, about 39 s left",
        "120 completions judged, 4.0 a second, 60 of 100 rows, about 20 s left",
    ]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(score_progress, "SteadyConsole", lambda stderr: SteadyConsole(stderr=stderr, force_terminal=True, width=120))
    with progress(lambda: 40) as shown:
        shown.update(20, 10)
    said = capsys.readouterr()
    assert said.out == ""
    assert "10/40" in said.err


@pytest.mark.parametrize(("total", "rows"), [(None, 50), (0, 50), (50, 50), (100, 0)])
def test_no_time_is_foretold_from_nothing(
    total: int | None, rows: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    clock = iter([100.0, 120.0])
    monkeypatch.setattr(score_progress.time, "monotonic", lambda: next(clock))
    with progress(lambda: total) as shown:
        shown.update(60, rows)
    assert capsys.readouterr().err == "60 completions judged, 3.0 a second\n"


@pytest.mark.parametrize(("left", "said"), [(89, "89 s"), (600, "10 min"), (9000, "2.5 h")])
def test_a_time_is_said_in_words(left: float, said: str) -> None:
    assert score_progress._spoken(left) == said


def test_rows_are_counted_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file, registry = tmp_path / "rows.jsonl", Registry.discover()
    file.write_text("{}\n\n{}\n{}", encoding="utf-8")
    assert rows_of(str(file), registry, None) == 3
    assert rows_of(str(file), registry, 2) == 2
    monkeypatch.setattr(score_progress, "_COUNTED_BYTES", 3)
    assert rows_of(str(file), registry, None) is None


@pytest.mark.parametrize(("name", "text"), [("rows.json", '[{"a": 1}, {"a": 2}]'), ("rows.csv", "a,b\n1,2\n3,4\n")])
def test_rows_of_other_files_are_read_to_be_counted(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    assert rows_of(str(tmp_path / name), Registry.discover(), None) == 2
    (tmp_path / name).write_bytes(b'[{"\xff')
    assert rows_of(str(tmp_path / name), Registry.discover(), 7) == 7
    assert rows_of("hf:some/name", Registry.discover(), None) is None
