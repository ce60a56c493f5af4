"""The progress of ``score`` and ``audit``: a bar on a terminal, lines elsewhere, always on standard error."""

from __future__ import annotations

from pathlib import Path

import pytest
from rlcore_plugin_score import score_progress
from rlcore_plugin_score.score_progress import progress, rows_of

from rlcore.api.commands import SteadyConsole


def test_lines_on_standard_error_now_and_then(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    clock = iter([100.0, 105.0, 111.0, 112.0, 130.0])
    monkeypatch.setattr(score_progress.time, "monotonic", lambda: next(clock))
    with progress(lambda: pytest.fail("nobody needs the total")) as shown:
        for rows in (1, 22, 23, 60):
            shown.update(rows)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.splitlines() == ["22 completions judged, 2.0 a second", "60 completions judged, 2.0 a second"]


def test_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(score_progress, "SteadyConsole", lambda stderr: SteadyConsole(stderr=stderr, force_terminal=True, width=120))
    with progress(lambda: 40) as shown:
        shown.update(10)
    said = capsys.readouterr()
    assert said.out == ""
    assert "10/40" in said.err


def test_rows_are_counted_up_to_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "rows.jsonl"
    file.write_text("{}\n\n{}\n{}", encoding="utf-8")
    assert rows_of(file, None) == 3
    assert rows_of(file, 2) == 2
    monkeypatch.setattr(score_progress, "_COUNTED_BYTES", 3)
    assert rows_of(file, None) is None
