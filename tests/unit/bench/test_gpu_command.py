"""`make gpu` as it is typed: what is refused before a part runs, the JSON line, and what comes into the page. No part really runs."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

import benchmarks.gpu
from benchmarks.gpu import __main__ as gpu
from benchmarks.gpu import packages
from benchmarks.gpu.parts import PARTS, Part
from benchmarks.gpu.results import FILE, Results
from benchmarks.gpu.runner import Runner
from benchmarks.gpu.table import BEGIN, END, NOT_YET

EMPTY = f"before\n{BEGIN}\n{NOT_YET}\n{END}\nafter\n"
SHOWN = f"{BEGIN}\n| part | |\n| --- | --- |\n| sleep | done |\n| trace | done |\n| generation | aten::mm |\n{END}\n"


@pytest.fixture
def page(tmp_path: Path) -> Path:
    file = tmp_path / "page.md"
    file.write_text(EMPTY)
    return file


@pytest.fixture
def calls(page: Path, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the parts that were begun, on a machine that seems to have a card."""
    begun: list[str] = []

    def outcome(self: Runner, part: Part, *rest: Any) -> dict[str, Any]:
        begun.append(part.name)
        return {"status": "done", "said": "all well", "figures": {}, "rows": [], "machine": {}}

    monkeypatch.setattr(Runner, "_outcome", outcome)
    monkeypatch.setattr(gpu, "_check_device", lambda device: None)
    monkeypatch.setattr(gpu, "DOCUMENT", page)
    return begun


def test_without_time_for_any_part_all_are_named_as_left(
    tmp_path: Path, page: Path, calls: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.command(["--minutes", "0", "--folder", str(tmp_path / "new")]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["left"] == [part.name for part in PARTS]
    assert (tmp_path / "new" / "cuda-full" / "results.md").read_text() == NOT_YET + "\n"
    assert calls == []
    assert page.read_text() == EMPTY


def test_a_run_puts_its_tables_into_the_page(tmp_path: Path, page: Path, calls: list[str]) -> None:
    assert gpu.command(["--only", "sleep", "--folder", str(tmp_path)]) == 0
    assert "| sleep | done | all well |" in page.read_text()
    assert calls == ["sleep"]


def test_only_the_parts_that_were_asked_for_decide_the_exit_code(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failed = {"status": "failed", "said": "ended with 1", "figures": {}, "rows": [], "machine": {}}
    with monkeypatch.context() as patch:
        patch.setattr(Runner, "_outcome", lambda *rest: failed)
        assert gpu.command(["--only", "trace", "--folder", str(tmp_path)]) == 1
    assert json.loads(capsys.readouterr().out)["failed"] == ["trace"]
    assert gpu.command(["--only", "sleep", "--folder", str(tmp_path)]) == 0
    last = json.loads(capsys.readouterr().out)
    assert (last["failed"], last["parts"]["trace"]["status"]) == ([], "failed")
    assert gpu.command(["--only", "trace", "--minutes", "0", "--folder", str(tmp_path)]) == 1


def test_ctrl_c_is_one_line_and_keeps_what_ended(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gpu.command(["--only", "sleep", "--folder", str(tmp_path)]) == 0
    capsys.readouterr()

    def interrupted(*rest: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(Runner, "_outcome", interrupted)
    assert gpu.command(["--only", "sleep", "--only", "trace", "--folder", str(tmp_path)]) == 130
    assert capsys.readouterr().err.splitlines()[-1].startswith("make gpu: stopped; ")
    assert list(Results(tmp_path / "cuda-full" / FILE).lines()) == ["sleep"]


def test_the_device_may_be_typed_in_capitals(tmp_path: Path, calls: list[str]) -> None:
    assert gpu.command(["--device", "CPU", "--only", "sleep", "--folder", str(tmp_path)]) == 0
    assert (tmp_path / "cpu-tiny" / FILE).exists()


def test_an_older_python_is_told_which_one_is_needed(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys, "version_info", (3, 10, 13, "final", 0))
    with pytest.raises(SystemExit) as ended:
        importlib.reload(benchmarks.gpu)
    assert ended.value.code == 2
    assert " is Python 3.10.13, and rlcore needs Python 3.11 or newer; " in capsys.readouterr().err


def test_a_run_without_parts_that_the_page_shows_leaves_the_page(
    tmp_path: Path, page: Path, calls: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    page.write_text(SHOWN)
    assert gpu.command(["--only", "sleep", "--folder", str(tmp_path)]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["parts"]["sleep"]["status"] == "done"
    assert f"the page stays as it is: {page} shows trace, which these results lack" in said.err
    assert page.read_text() == SHOWN
    assert gpu.command(["--only", "trace", "--folder", str(tmp_path)]) == 0
    assert page.read_text() != SHOWN


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        (EMPTY, "there are no results to put into"),
        (SHOWN, "there are no results to put into"),
        ("no marks", "has no line <!-- results -->"),
    ],
)
def test_without_results_the_page_is_refused_and_left(
    tmp_path: Path, page: Path, capsys: pytest.CaptureFixture[str], before: str, sentence: str
) -> None:
    page.write_text(before)
    assert gpu.command(["--folder", str(tmp_path), "--document", str(page)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("make gpu: ")
    assert sentence in said
    assert said.count("\n") == 1
    assert page.read_text() == before


def test_a_page_that_is_not_there_is_one_sentence(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpu.command(["--document", str(tmp_path / "none.md")]) == 2
    assert "none.md cannot be read (No such file or directory)" in capsys.readouterr().err


def test_a_page_without_marks_is_refused_before_a_part_runs(tmp_path: Path, page: Path, calls: list[str]) -> None:
    page.write_text("no marks")
    assert gpu.command(["--only", "sleep", "--folder", str(tmp_path)]) == 2
    assert calls == []


def test_a_machine_that_lacks_a_package_is_refused_before_a_part_runs(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(packages, "_EXPECTED", ("rich", "not_on_any_machine"))
    assert gpu.command(["--only", "sleep", "--folder", str(tmp_path)]) == 2
    assert " lacks not_on_any_machine (" in capsys.readouterr().err
    assert calls == []


def test_an_error_of_a_part_s_runner_keeps_its_traceback(tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(self: Runner, *rest: Any) -> None:
        raise ValueError("a mistake of ours")

    monkeypatch.setattr(Runner, "_outcome", broken)
    with pytest.raises(ValueError, match="a mistake of ours"):
        gpu.command(["--only", "sleep", "--folder", str(tmp_path)])


def test_the_json_line_is_there_before_the_page_is_written(
    tmp_path: Path, calls: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def full(file: Path, lines: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(gpu, "put_into", full)
    with pytest.raises(OSError, match="no space"):
        gpu.command(["--only", "sleep", "--folder", str(tmp_path)])
    assert list(json.loads(capsys.readouterr().out)["parts"]) == ["sleep"]
