"""What Trackio's own storage says of the runs that the tracker began."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextvars import copy_context
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import trackio
from rlcore_plugin_trackers.suppressed_output import suppressed_output
from rlcore_plugin_trackers.trackio_options import TrackioOptions
from rlcore_plugin_trackers.trackio_tracker import TrackioTracker
from trackio.sqlite_storage import SQLiteStorage

from rlcore.api import RunInfo, Tracker
from rlcore.testing import TrackerSuite


@pytest.fixture(autouse=True)
def storage(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of Trackio's for each test: it reads TRACKIO_DIR once, when it is imported. The Hub is out of reach."""
    folder = tmp_path_factory.mktemp("trackio")
    for module in ("utils", "sqlite_storage"):
        monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", folder)
    for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL", "HF_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_TOKEN_PATH", str(folder / "none"))
    return folder


def rows(folder: Path) -> list[dict[str, Any]]:
    """What Trackio has of the run of a folder."""
    kept = json.loads((folder / "trackio.json").read_text())
    logs = SQLiteStorage.get_logs(kept["project"], run_id=kept["id"])
    return [{name: value for name, value in row.items() if name != "timestamp"} for row in logs]


def a_run(folder: Path, said: list[str] | None = None, **other: Any) -> RunInfo:
    (folder / "run-1").mkdir(parents=True, exist_ok=True)
    note = print if said is None else said.append
    return RunInfo(folder=folder / "run-1", config={"run": {"project": "p"}}, manifest={"rlcore": "0.1.0"}, note=note, **other)


def tracked(run: RunInfo, *records: Mapping[str, Any], **options: Any) -> TrackioTracker:
    tracker = TrackioTracker(TrackioOptions(**options))
    tracker.open(run)
    for record in records:
        tracker.log(record)
    return tracker


class TestTrackioTracker(TrackerSuite):
    def make(self, folder: Path) -> Tracker:
        return TrackioTracker(TrackioOptions(system_metrics=False))

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        return list(rows(folder / "run"))


def test_the_figures_keep_their_names_steps_and_bits_and_the_run_says_what_it_is(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    said: list[str] = []
    run = a_run(tmp_path, said)
    tracked(run, {"step": 3, "reward/mean": 0.1}, {"step": 2, "eval/held": math.nan}, group="g").close()
    assert said == ["trackio: type trackio show --project p"]
    assert capfd.readouterr() == ("", "")
    first, second = rows(run.folder)
    assert first == {"step": 3, "reward/mean": 0.1}
    assert second["step"] == 2
    assert math.isnan(second["eval/held"])
    (found,) = trackio.Api().runs("p")
    assert found.name == "run-1"
    assert found.config is not None
    assert found.config["run"] == {"project": "p"}
    assert found.config["rlcore"] == {"rlcore": "0.1.0"}
    assert found.config["_Group"] == "g"


def test_a_run_that_goes_on_is_one_run_with_each_record_once(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    tracked(a_run(tmp_path / "other"), {"step": 1, "a": 0.0}).close()  # of the same name, in the same project
    tracked(run, *({"step": step, "a": float(step)} for step in (1, 2, 3))).close()
    lines = [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}, {"step": 2, "eval/held": 0.5}]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lines))
    tracked(replace(run, step=2), {"step": 3, "a": 30.0}).close()
    assert rows(run.folder) == [*lines, {"step": 3, "a": 30.0}]
    assert rows(tmp_path / "other" / "run-1") == [{"step": 1, "a": 0.0}]
    assert len(list(trackio.Api().runs("p"))) == 2


def test_a_run_of_which_nothing_was_written_goes_on(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    (run.folder / "trackio.json").write_text('{"project": "p", "id": "gone", "remote": false}')
    tracked(replace(run, step=2), {"step": 3, "a": 30.0}).close()
    assert rows(run.folder) == [{"step": 3, "a": 30.0}]


@pytest.mark.parametrize("variable", [False, True])
def test_without_the_hub_the_figures_stay_here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: bool) -> None:
    said: list[str] = []
    run = a_run(tmp_path, said)
    if variable:
        monkeypatch.setenv("TRACKIO_SERVER_URL", "http://127.0.0.1:9")  # it wants a token too
    tracked(run, {"step": 1, "a": 1.0}, **({} if variable else {"space_id": "nobody"})).close()
    assert rows(run.folder) == [{"step": 1, "a": 1.0}]
    assert said[0].startswith("trackio: no Space (")
    assert "trackio sync --project p --space-id" in said[0]


def test_a_run_of_the_caller_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def caller() -> None:
        own = trackio.init(project="own", name="own", auto_log_cpu=False, auto_log_gpu=False)
        tracked(a_run(tmp_path), {"step": 1, "a": 1.0}).close()
        trackio.log({"b": 2.0})
        trackio.finish()
        assert [row["b"] for row in SQLiteStorage.get_logs("own", run_id=own.id)] == [2.0]

    copy_context().run(caller)
    assert "* Created new run: own" in (out := capsys.readouterr().out)
    assert "run-1" not in out


def test_what_other_threads_print_meanwhile_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with suppressed_output():
        print("mine")
        other = threading.Thread(target=print, args=("theirs",))
        other.start()
        other.join()
    print("later")
    assert capsys.readouterr().out == "theirs\nlater\n"


def test_trackio_is_imported_by_a_run_that_has_it_only() -> None:
    code = "import sys, rlcore_plugin_trackers, rlcore_plugin_trackers.trackio_options; sys.exit('trackio' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
