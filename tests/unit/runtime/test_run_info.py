"""What a tracker of a run that goes on may begin with."""

from __future__ import annotations

import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rlcore.api import RunInfo
from rlcore.config import RunConfig
from rlcore.runtime.listeners import Listeners
from rlcore.testing import PluginFolder
from rlcore.testing.trackers.fake_tracker import FakeTracker


def test_the_records_are_those_of_metrics_jsonl_up_to_the_step(tmp_path: Path) -> None:
    rows = [{"step": 1, "a": 1.0}, {"step": 3, "a": 3.0}, {"step": 2, "eval/held": None}]
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    first, late = RunInfo(folder=tmp_path, step=2).records()
    assert first == {"step": 1, "a": 1.0}
    assert late["step"] == 2
    assert math.isnan(late["eval/held"])
    assert list(RunInfo(folder=tmp_path).records()) == []
    assert list(RunInfo(folder=tmp_path / "absent", step=2).records()) == []


def test_a_tracker_is_given_the_manifest_and_can_show_a_line(tmp_path: Path) -> None:
    said: list[str] = []
    with PluginFolder(tmp_path / "site") as folder:
        folder.install("fakes", target="rlcore.testing.fake_plugin")
        config = RunConfig().model_copy(update={"log": RunConfig().log.model_copy(update={"trackers": ("fake",)})})
        plan: Any = SimpleNamespace(config=config, tracker_options=(None,), resume=None, registry=folder.discover())
        with Listeners(plan, tmp_path, said.append, {"rlcore": "0.1.0"}):
            run = FakeTracker.made[-1].run
    assert run is not None
    assert run.manifest == {"rlcore": "0.1.0"}
    run.note("a line")
    assert said == ["a line"]
    RunInfo(folder=tmp_path).note("nobody listens")
