"""What TensorBoard, wandb and Trackio read back of a run, each with its own reader, is what metrics.jsonl says."""

from __future__ import annotations

import json
import math
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import trackio
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from trackio.sqlite_storage import SQLiteStorage

from rlcore.testing import RunTester
from tests.wandb_records import QUICK, wandb_records

TRACKERS = ("tensorboard", "wandb", "trackio")
Figures = Counter[tuple[int, str, float]]
"""(step, name, value) of every figure, and how often it is there; NaN is ``math.nan`` itself, which a Counter finds again."""

KILLER = """
import os, signal
from rlcore.api import hookimpl

rlcore_api = "2.0"

@hookimpl
def rlcore_step_finished(step, metrics):
    if str(step) == os.environ.get("KILLED_AFTER"):
        os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(autouse=True)
def _exits_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run in this process may leave W&B's own ``sys.exit`` behind."""
    monkeypatch.setattr(sys, "exit", sys.exit)
    monkeypatch.setattr(sys, "excepthook", sys.excepthook)


def figures(records: Iterable[Mapping[str, Any]]) -> Figures:
    """Of records with a step each."""
    return Counter(
        (record["step"], name, _number(value)) for record in records for name, value in record.items() if name != "step" and name[0] != "_"
    )


def _number(value: Any) -> float:
    number = float("nan" if value is None else value)
    return math.nan if math.isnan(number) else number


def of_metrics(run: Path) -> Figures:
    return figures(json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines())


def in_float32(found: Figures) -> Figures:
    return Counter({(step, name, _number(np.float32(value))): count for (step, name, value), count in found.items()})


def of_tensorboard(run: Path) -> Figures:
    read = EventAccumulator(str(run / "tensorboard"), size_guidance={"scalars": 0})
    read.Reload()
    return figures({"step": event.step, name: event.value} for name in read.Tags()["scalars"] for event in read.Scalars(name))


def of_wandb(run: Path) -> Figures:
    (folder,) = run.glob("wandb/offline-run-*/")
    return figures(record["item"] for record in wandb_records(folder, "history"))


def of_trackio(run: Path) -> Figures:
    found = [one for one in trackio.Api().runs("project") if one.name == run.name]
    assert len(found) == 1, f"Trackio has {len(found)} runs of this name"
    logs = SQLiteStorage.get_logs("project", run_id=found[0].id)
    return figures({name: value for name, value in row.items() if name != "timestamp"} for row in logs)


@pytest.fixture
def surroundings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """Variables of the runs: a home and a folder of Trackio's of their own. This process reads the latter."""
    for module in ("utils", "sqlite_storage"):  # they read TRACKIO_DIR once, when they are imported
        monkeypatch.setattr(f"trackio.{module}.TRACKIO_DIR", tmp_path / "trackio")
    return {"HOME": str(tmp_path / "home"), "TRACKIO_DIR": str(tmp_path / "trackio"), "WANDB_MODE": "offline", **QUICK}


def a_project(folder: Path, *, in_process: bool = False, **sections: Mapping[str, Any]) -> tuple[RunTester, str]:
    """Six updates, evaluated after every second one, with a checkpoint after every second one."""
    tester = RunTester(folder, in_process=in_process).with_fakes()
    tester.plugins.install("killer", KILLER)
    held_out = {"eval_dataset": {"held": str(tester.fake_data("held.jsonl", "abcd"))}, "eval_interval": 2}
    run = {"num_episodes": 8, "max_steps": 6, "project": "project", **sections.get("run", {})}
    log = {"trackers": list(TRACKERS), "save_interval": 2, **sections.get("log", {})}
    rest = {name: values for name, values in sections.items() if name not in ("run", "log")}
    return tester, tester.fake_run(run=run, log=log, **{"eval": held_out, **rest})


def assert_each_has_the_same(run: Path, steps: int = 6) -> None:
    expected = of_metrics(run)
    assert json.loads((run / "summary.json").read_text())["switched_off"] == {}
    assert {step for step, name, _ in expected if name == "reward/mean"} == set(range(1, steps + 1))
    assert any(name.startswith("eval/") for _, name, _ in expected)
    assert set(expected.values()) == {1}
    assert of_tensorboard(run) == in_float32(expected)
    assert of_wandb(run) == expected
    assert of_trackio(run) == expected


def test_the_table_of_the_page_is_accepted(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "how_to" / "trackers.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"<!-- test: trackers -->\n```toml\n(.*?)^```$", page, re.DOTALL | re.MULTILINE)
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    planned = tester.run("train", tester.fake_run(**tomllib.loads(table)), "--dry-run", "--json").assert_ok().json
    assert planned["config"]["log"]["trackers"] == list(TRACKERS)
    assert planned["config"]["log"]["options"]["wandb"]["tags"] == ["first"]


def test_every_tracker_has_the_figures_of_metrics_jsonl(tmp_path: Path, surroundings: dict[str, str]) -> None:
    tester, config = a_project(tmp_path, in_process=True)  # which has imported the trackers
    done = tester.run("train", config, "--json", env=surroundings).assert_ok()
    run = tmp_path / done.json["run"]
    assert_each_has_the_same(run)
    assert f"wandb sync {next(run.glob('wandb/offline-run-*'))}" in done.stderr
    assert "trackio show --project project" in done.stderr
    (found,) = trackio.Api().runs("project")
    assert (found.config or {})["rlcore"] == json.loads((run / "manifest.json").read_text())
    assert (found.config or {})["training"]["train_batch_size"] == 3


def test_a_run_with_evaluations_beside_the_training_has_them_under_their_steps(tmp_path: Path, surroundings: dict[str, str]) -> None:
    """Then figures of step 2 come after those of step 3, which W&B would drop if they were W&B's steps."""
    tester, config = a_project(tmp_path, in_process=True, schedule={"max_staleness": 1})
    run = tmp_path / tester.run("train", config, "--json", env=surroundings).assert_ok().json["run"]
    assert_each_has_the_same(run)


def test_a_killed_run_that_goes_on_is_one_curve_everywhere(tmp_path: Path, surroundings: dict[str, str]) -> None:
    """Killed after update 5, it goes on from the checkpoint of update 4; killed again after update 7, it goes on from that of update 6."""
    tester, config = a_project(tmp_path, run={"max_steps": 8})
    tester.run("train", config, env={**surroundings, "KILLED_AFTER": "5"})
    (run,) = (tmp_path / "runs" / "project").glob("2*")
    assert max(step for step, _, _ in of_metrics(run)) == 5
    tester.run("resume", str(run), env={**surroundings, "KILLED_AFTER": "7"})
    assert max(step for step, _, _ in of_metrics(run)) == 7
    tester.run("resume", str(run), env=surroundings).assert_ok()
    assert_each_has_the_same(run, steps=8)


def test_a_tracker_that_a_resume_adds_has_the_whole_curve(tmp_path: Path, surroundings: dict[str, str]) -> None:
    tester, config = a_project(tmp_path, log={"trackers": []})
    tester.run("train", config, env={**surroundings, "KILLED_AFTER": "5"})
    (run,) = (tmp_path / "runs" / "project").glob("2*")
    tester.run("resume", str(run), "--trackers", *TRACKERS, env=surroundings).assert_ok()
    assert_each_has_the_same(run)
