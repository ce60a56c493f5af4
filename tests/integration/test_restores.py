"""A run of processes that loses a rank, by a kill or a stop, goes back to its last checkpoint by itself; each prompt is trained once."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.faults import BackgroundRun, Outcome, until
from tests.integration.test_local_processes import children

STEPS = 24


def project(folder: Path, **sections: dict[str, Any]) -> tuple[RunTester, str]:
    tester = RunTester(folder).with_fakes()
    defaults: dict[str, dict[str, Any]] = {
        "run": {"num_episodes": STEPS // 2, "max_steps": STEPS, "runtime": "local"},
        "schedule": {"max_staleness": 2, "heartbeat_deadline": 4.0, "reward_workers": 1},
        "training": {"num_trainers": 2},
        "log": {"save_interval": 3, "rollout_interval": 1},
    }
    return tester, tester.fake_run(**{name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | sections})


def strike(run: BackgroundRun, name: str, number: signal.Signals) -> None:
    """Send a signal to the worker of this name."""
    mark = f'"name": "{name}"'
    (pid,) = until(lambda: [pid for pid, said in children(run.process.pid).items() if mark in said], name)
    os.kill(pid, number)


def whole(outcome: Outcome) -> None:
    """Each update once, in order, and each prompt once."""
    outcome.balances(6 * (STEPS // 2), staleness=2)
    assert [row["step"] for row in outcome.rows("metrics.jsonl") if "seconds" in row] == list(range(1, STEPS + 1))
    assert [row.get("step", "all") for row in outcome.rows("times.jsonl")] == [*range(1, STEPS + 1), "all"]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_rank_that_dies_or_stops_costs_the_updates_since_the_last_checkpoint(tmp_path: Path, number: signal.Signals) -> None:
    tester, config = project(tmp_path)
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(7)
        strike(run, "trainer rank 1", number)
        outcome = run.outcome()
    whole(outcome)
    why = "died (killed by signal 9" if number is signal.SIGKILL else "was lost (its process has not answered for 4 s)"
    said = [line for line in outcome.stderr if line.startswith(f"warning: trainer rank 1 of 2 {why}")]
    assert len(said) == 1, outcome
    assert "resumes automatically from step" in said[0]
    assert said[0].endswith("restore 1 of at most 3 in a row")
    assert outcome.summary["remarks"][:1] == [
        "the run restored its last checkpoint automatically once, because a part of it was lost; seconds and "
        "tokens/s cover only the time after that"
    ]
    manifest = json.loads(((outcome.folder or tmp_path) / "manifest.json").read_text())
    assert len(manifest["resumes"]) == 1


@pytest.mark.nightly
@pytest.mark.full
def test_before_the_first_checkpoint_the_run_begins_anew_in_its_folder(tmp_path: Path) -> None:
    tester, config = project(tmp_path, log={"save_interval": 0})
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(3)
        strike(run, "trainer rank 0", signal.SIGKILL)
        outcome = run.outcome()
    whole(outcome)
    assert len(list((tester.folder / "runs").glob("*/2*"))) == 1, "the run has one folder"
    assert any("the run resumes automatically from step 0, restore 1" in line for line in outcome.stderr), outcome


@pytest.mark.full
def test_at_staleness_0_the_restored_run_ends_with_the_same_bits(tmp_path: Path) -> None:
    sections = {"schedule": {"max_staleness": 0}, "training": {"num_trainers": 2}}
    tester, config = project(tmp_path, **sections)
    undisturbed = tester.run("train", config, "--json", "--run-dir", "alone").assert_ok()
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(5)
        strike(run, "trainer rank 1", signal.SIGKILL)
        outcome = run.outcome()
    whole(outcome)
    weights = f"checkpoints/step-{STEPS}/model/fake_policy.npz"
    assert ((outcome.folder or tmp_path) / weights).read_bytes() == (tester.folder / undisturbed.json["run"] / weights).read_bytes()


@pytest.mark.full
def test_a_run_that_may_not_restore_ends_with_one_sentence(tmp_path: Path) -> None:
    tester, config = project(tmp_path, schedule={"max_restores": 0})
    with BackgroundRun(tester, ("train", config), tmp_path) as run:
        run.reach(4)
        others = children(run.process.pid)
        strike(run, "trainer rank 1", signal.SIGKILL)
        outcome = run.outcome()
    assert outcome.exit_code == 1, outcome
    assert "trainer rank 1 of 2 died (killed by signal 9" in outcome.error
    assert "the last checkpoint is " in outcome.error
    assert not [pid for pid in others if Path(f"/proc/{pid}").exists()]


@pytest.mark.full
def test_restores_that_bring_no_new_checkpoint_come_to_an_end(tmp_path: Path) -> None:
    tester, config = project(tmp_path, log={"save_interval": 0}, schedule={"max_restores": 1})
    with BackgroundRun(tester, ("train", config), tmp_path) as run:
        run.reach(2)
        strike(run, "trainer rank 0", signal.SIGKILL)
        run.said("restore 1 of at most 1 in a row")
        strike(run, "trainer rank 0", signal.SIGKILL)
        outcome = run.outcome()
    assert outcome.exit_code == 1, outcome
    assert "nothing was saved yet" in outcome.error
    assert "the run had restored its checkpoint once without reaching another one (--max-restores)" in outcome.error
