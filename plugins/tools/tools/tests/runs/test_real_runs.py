"""Runs that a trainer made: listed, compared and read, one that was killed included."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET


@pytest.fixture(scope="module")
def tester(tmp_path_factory: pytest.TempPathFactory) -> RunTester:
    """Three seeds of one setting, one run of another, and one that was killed in the middle."""
    tester = RunTester(tmp_path_factory.mktemp("project"), in_process=True).with_fakes()
    tester.fake_data("held.jsonl")
    config = tester.fake_run(
        eval={"eval_dataset": {"letters": "held.jsonl"}, "eval_interval": 2},
        run={"num_episodes": 4, "max_steps": 4},
        log={"rollout_interval": 1},
    )
    for seed in "012":
        tester.run("train", config, "--seed", seed, "-p", "seeds").assert_ok()
    tester.run("train", config, "-lr", "0.5", "-p", "other").assert_ok()
    kill_in_the_middle(tester, config)
    return tester


def kill_in_the_middle(tester: RunTester, config: str) -> None:
    """After its second update."""
    words = ["train", config, "-p", "killed", "--max-steps", "100000", "-e", "100000", "-ei", "0"]
    environment = {**tester.plugins.environment, **QUIET}
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words], cwd=tester.folder, env=environment, stdout=subprocess.PIPE, text=True
    ) as run:
        for line in run.stdout or ():
            if line.startswith("step ") and not line.startswith("step 1/") and any(tester.folder.glob("runs/killed/*/rollouts/step-1.*")):
                run.send_signal(signal.SIGKILL)
                break


def runs_of(tester: RunTester, project: str) -> list[str]:
    return sorted(str(path.relative_to(tester.folder)) for path in (tester.folder / "runs" / project).iterdir())


def test_they_are_listed(tester: RunTester) -> None:
    answer = tester.run("runs", "--json").assert_ok().json
    by_project: dict[str, list[dict[str, Any]]] = {}
    for row in answer["runs"]:
        by_project.setdefault(row["project"], []).append(row)
    assert {project: len(rows) for project, rows in by_project.items()} == {"killed": 1, "other": 1, "seeds": 3}
    for row in (*by_project["seeds"], *by_project["other"]):
        assert (row["state"], row["step"], row["planned"], row["best"]["metric"]) == ("finished", 4, 4, "accuracy")
        assert row["seconds"] > 0
    (killed,) = by_project["killed"]
    assert (killed["state"], killed["planned"]) == ("ended", 100000)
    assert killed["step"] >= 2
    assert {"run.seed", "training.learning_rate"} <= set(answer["differ"])
    # the best is that of the run's own file of metrics
    run = by_project["other"][0]
    lines = [json.loads(line) for line in (tester.folder / run["run"] / "metrics.jsonl").read_text().splitlines()]
    assert run["best"]["value"] == max(line["eval/letters"] for line in lines if "eval/letters" in line)


def test_how_many_updates_a_run_plans_is_known_without_a_limit(tester: RunTester, tmp_path: Path) -> None:
    other = RunTester(tmp_path, in_process=True).with_fakes()
    config = Path(other.fake_run(run={"num_episodes": 2}))
    config.write_text(config.read_text().replace("max_steps = 3\n", ""))
    other.run("train", str(config)).assert_ok()  # six letters, three a batch, twice
    (row,) = other.run("runs", "--json").assert_ok().json["runs"]
    assert (row["step"], row["planned"]) == (4, 4)


def test_they_are_compared(tester: RunTester) -> None:
    names = [*runs_of(tester, "seeds"), *runs_of(tester, "other"), *runs_of(tester, "killed")]
    found = tester.run("compare", *names, "--json").assert_ok().json
    assert [len(group["runs"]) for group in found["groups"]] == [3, 1, 1]
    assert found["versions"] == []
    evaluation = found["evaluations"][0]
    assert (evaluation["metric"], evaluation["figures"][0]["count"], evaluation["figures"][0]["over"]) == ("eval/letters", 3, "seeds")
    assert "training.learning_rate" in {item["name"] for item in found["settings"]}
    pair = tester.run("compare", *names[:2], "--json").assert_ok().json
    (paired,) = next(row for row in pair["evaluations"] if row["at"] == "step 4")["paired"]
    assert paired["count"] == 6
    tester.run("compare", *names).assert_ok()


def test_their_rollouts_are_read(tester: RunTester) -> None:
    run = runs_of(tester, "other")[0]
    rows = [json.loads(line) for line in tester.run("rollouts", run, "--json").assert_ok().lines]
    assert [row["step"] for row in rows] == [step for step in range(1, 5) for _ in range(24)]
    wrong = [json.loads(line) for line in tester.run("rollouts", run, "--outcome", "wrong", "--json").assert_ok().lines]
    assert wrong == [row for row in rows if row["outcome"] == "wrong"]
    tester.run("rollouts", run, "--parquet", "real.parquet").assert_ok()
    assert parquet.read_table(tester.folder / "real.parquet").column("text").to_pylist() == [row["text"] for row in rows]
    answers = tester.run("rollouts", run, "--eval", "letters", "--step", "0", "--json").assert_ok().lines
    assert len(answers) == 6
    assert tester.run("rollouts", runs_of(tester, "killed")[0], "--step", "1", "-n", "24").assert_ok().stdout.count("── step 1") == 24
