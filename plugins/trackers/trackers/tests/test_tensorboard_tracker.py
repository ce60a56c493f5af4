"""What TensorBoard's own reader finds in the files of the tracker."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore_plugin_trackers.tensorboard_options import TensorBoardOptions
from rlcore_plugin_trackers.tensorboard_tracker import TensorBoardTracker
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader
from tensorboard.plugins.hparams.metadata import parse_session_start_info_plugin_data

from rlcore.api import RunInfo, Tracker
from rlcore.testing import TrackerSuite


class TestTensorBoardTracker(TrackerSuite):
    def make(self, folder: Path) -> Tracker:
        return TensorBoardTracker()

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        (path,) = (path for path in (folder / "run" / "tensorboard").iterdir() if path.stat().st_size)
        events = [event for event in EventFileLoader(str(path)).Load() if event.HasField("summary") and event.step]
        return [{"step": event.step, **{value.tag: value for value in event.summary.value}} for event in events]


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    found.Reload()
    return found


def a_run(folder: Path, **other: Any) -> RunInfo:
    (folder / "project" / "run-1").mkdir(parents=True, exist_ok=True)
    config = {"run": {"project": "p"}, "training": {"learning_rate": 0.5, "resume": True, "none": None}, "rewards": [{"name": "boxed"}]}
    return RunInfo(folder=folder / "project" / "run-1", config=config, manifest={"rlcore": "0.1.0"}, **other)


def tracked(run: RunInfo, *records: Mapping[str, Any], **options: Any) -> TensorBoardTracker:
    tracker = TensorBoardTracker(TensorBoardOptions(**options))
    tracker.open(run)
    for record in records:
        tracker.log(record)
    return tracker


def test_settings_and_manifest_are_texts_and_hyperparameters(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    tracked(run, {"step": 1, "a": 1.0}).close()
    found = read(run.folder / "tensorboard")
    for name, content in (("config", run.config), ("manifest", run.manifest)):
        text = found.Tensors(name)[0].tensor_proto.string_val[0].decode()
        assert all(line.startswith("    ") for line in text.splitlines())
        assert json.loads(text) == content
    content = found.SummaryMetadata("_hparams_/session_start_info").plugin_data.content
    settings = parse_session_start_info_plugin_data(content)
    assert settings.group_name == "project/run-1"
    assert sorted(settings.hparams) == ["rewards", "run.project", "training.learning_rate", "training.resume"]
    assert settings.hparams["training.learning_rate"].number_value == 0.5
    assert settings.hparams["rewards"].string_value == '[{"name": "boxed"}]'
    tracked(run, hparams=False, log_dir="without").close()
    assert "_hparams_/session_start_info" not in read(run.folder / "without").Tags()["tensors"]


def test_what_was_logged_is_on_disk_before_it_is_closed(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    tracker = tracked(run, {"step": 1, "reward/mean": 0.25, "x": math.nan, "text": "no figure"})
    found = read(run.folder / "tensorboard")
    tracker.close()
    assert [(event.step, event.value) for event in found.Scalars("reward/mean")] == [(1, 0.25)]
    assert math.isnan(found.Scalars("x")[0].value)
    assert "text" not in found.Tags()["scalars"]


def test_a_shared_folder_has_one_of_each_run(tmp_path: Path) -> None:
    tracked(a_run(tmp_path / "runs"), {"step": 1, "a": 1.0}, log_dir=str(tmp_path / "shared")).close()
    assert [event.value for event in read(tmp_path / "shared" / "project" / "run-1").Scalars("a")] == [1.0]


def test_a_run_that_goes_on_has_each_record_once_at_its_first_time_and_what_the_tracker_had_missed(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    # Killed after update 3; the checkpoint is of update 2, whose evaluation the tracker was not told any more.
    tracked(run, *({"step": step, "a": float(step)} for step in (1, 2, 3)))
    shown = read(run.folder / "tensorboard")
    first = [event.wall_time for event in shown.Scalars("a")]
    rows = [{"step": 1, "a": 1.0}, {"step": 2, "a": 2.0}, {"step": 2, "eval/held": 0.5}]
    (run.folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    tracked(replace(run, step=2), {"step": 3, "a": 30.0}).close()
    shown.Reload()  # a TensorBoard that runs all the while
    for found in (read(run.folder / "tensorboard"), shown):
        assert [(event.step, event.value) for event in found.Scalars("a")] == [(1, 1.0), (2, 2.0), (3, 30.0)]
        assert [event.wall_time for event in found.Scalars("a")][:2] == first[:2]
        assert [event.value for event in found.Scalars("eval/held")] == [0.5]


def test_a_file_of_somebody_else_stays(tmp_path: Path) -> None:
    run = a_run(tmp_path)
    other = run.folder / "tensorboard" / "events.out.tfevents.1.profiler"
    other.parent.mkdir()
    other.write_bytes(b"x")
    tracked(run).close()
    tracked(replace(run, step=1)).close()
    assert other.read_bytes() == b"x"


def test_neither_torch_nor_tensorflow_is_needed() -> None:
    code = "import sys, rlcore_plugin_trackers.tensorboard_tracker; sys.exit(bool({'torch', 'tensorflow'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
