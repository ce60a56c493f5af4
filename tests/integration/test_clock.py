"""A clock that is set back while a run goes on, or between two runs: nothing measures by it, and the newest run stays the newest."""

from __future__ import annotations

import json
import re
import time
from itertools import count
from pathlib import Path

import pytest

from rlcore.runlog import folder as module
from rlcore.runlog.past_runs import past_runs
from rlcore.testing import RunTester

ROOT = Path(__file__).parents[2]
WALL = re.compile(r"time\.time\b|time\.time_ns\b|from time import [^\n]*\btime\b|datetime\.(now|utcnow|today)\b|strftime|localtime|gmtime")
ALLOWED = {
    "rlcore/schedule/accounting.py": "read once a worker, so that a trace says when it was made",
    "rlcore/runlog/folder.py": "the name of a run, which comes after all that are there",
    "rlcore/runlog/run_manifest.py": "when a run was resumed, for a person",
    "plugins/environments/gateway/rlcore_gateway/api_dialect.py": "when an answer was made, as clients of the API read it",
    "plugins/tools/tools/rlcore_plugin_tools/report/report_command.py": "when a report was written, for a person",
    "plugins/trackers/trackers/rlcore_plugin_trackers/tensorboard_tracker.py": "when a record was logged, as event files have it",
}


class Backwards(module.datetime):
    """``now`` is what a test says."""

    moment = module.datetime(2026, 10, 25, 2, 30)

    @classmethod
    def now(cls, tz: object = None) -> Backwards:
        return cls(*cls.moment.timetuple()[:6])


def test_a_run_under_a_clock_that_runs_backwards_is_the_same_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(eval={"eval_dataset": {"held": "train.jsonl"}, "eval_interval": 1}, schedule={"max_staleness": 1})
    before = count()
    monkeypatch.setattr(time, "time", lambda: 1e9 - 3600.0 * next(before))
    done = tester.run("train", config, "--json", "--save-interval", "auto").assert_ok()
    run = tmp_path / done.json["run"]
    rows = [json.loads(line) for name in ("metrics", "times") for line in (run / f"{name}.jsonl").read_text().splitlines()]
    spent = [value for row in rows for name, value in row.items() if name == "seconds" or name.startswith("time/")]
    spent += [value for row in rows for worker in row.get("workers", {}).values() for value in worker.values()]
    assert spent
    spent += [done.json["train_seconds"], *done.json["time"].values()]
    assert [value for value in spent if not -1e-6 < value < 600] == []
    events = json.loads((run / "trace.json").read_text())["traceEvents"]
    assert all(event["ts"] >= 0 and event.get("dur", 0) >= 0 for event in events)


def test_a_run_that_begins_when_the_clock_was_set_back_is_the_newest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As at the end of summer time, and on a machine whose clock is wrong."""
    monkeypatch.setattr(module, "datetime", Backwards)
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run()
    (tmp_path / "runs/rlcore/20269999-000000-mine").mkdir(parents=True)  # somebody's, and no time
    (tmp_path / "runs/rlcore/99991231-235959-mine").mkdir()
    made = []
    for hours in (0, -1, -24 * 365):
        Backwards.moment = module.datetime(2026, 10, 25, 2, 30) + module.timedelta(hours=hours)
        made.append(tmp_path / tester.run("train", config, "--json", "--seed", str(len(made))).assert_ok().json["run"])
    assert [run.name[:15] for run in made] == ["20261025-023000", "20261025-023001", "20261025-023002"]
    assert [run.root for run in past_runs(tmp_path / "runs" / "rlcore")] == made[::-1]
    told = tester.run("train", config, "--resume", "auto", "--seed", "2", "--json").assert_ok()
    assert tmp_path / told.json["run"] == made[2]
    assert not told.written


def test_nothing_else_looks_at_the_clock_on_the_wall() -> None:
    sources = [path for folder in ("rlcore", "plugins") for path in (ROOT / folder).rglob("*.py") if "tests" not in path.parts]
    found = {str(path.relative_to(ROOT)) for path in sources if WALL.search(path.read_text(encoding="utf-8"))}
    assert found == ALLOWED.keys()
