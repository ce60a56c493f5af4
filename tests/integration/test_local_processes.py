"""The local runtime with processes of their own: the same numbers, replacements for what dies, another environment, nothing left."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from rlcore_plugin_workers import batch_reader
from rlcore_plugin_workers.schedule_service import BatchOrder
from rlcore_plugin_workers.trainer_ranks import TrainerRanks

from rlcore.testing import RunOutcome, RunTester
from tests.integration.ray.faults import BackgroundRun, until
from tests.other_environment import install_engine_there, other_environment


def project(folder: Path, **sections: Any) -> tuple[RunTester, str]:
    tester = RunTester(folder, in_process=True).with_fakes()
    return tester, tester.fake_run(**sections)


def weights_of(tester: RunTester, outcome: RunOutcome) -> bytes:
    return (tester.folder / outcome.json["checkpoint"] / "model" / "fake_policy.npz").read_bytes()


def metrics_of(tester: RunTester, outcome: RunOutcome) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in (tester.folder / outcome.json["run"] / "metrics.jsonl").read_text().splitlines()]
    measured = ("time/", "second", "reward/latency", "reward/outcome", "reward/timeouts")  # outcomes are those that were heard of by then
    return [{name: value for name, value in row.items() if not any(part in name for part in measured)} for row in rows]


def outcomes_of(tester: RunTester, outcome: RunOutcome) -> list[list[float]]:
    rows = (tester.folder / outcome.json["run"] / "metrics.jsonl").read_text().splitlines()
    return [[value for name, value in json.loads(row).items() if name.startswith("reward/outcome/")] for row in rows]


def test_on_policy_processes_make_the_run_of_one_process(tmp_path: Path) -> None:
    """However many producers there are, to the bit; several ranks too."""
    tester, config = project(tmp_path, run={"num_episodes": 4, "max_steps": 6})
    alone = tester.run("train", config, "--json").assert_ok()
    several = tester.run("train", config, "--json", "--runtime", "local", "-i", "2", "-t", "2").assert_ok()
    assert weights_of(tester, several) == weights_of(tester, alone)
    two = tester.run("train", config, "--json", "--runtime", "local", "-i", "2").assert_ok()
    assert metrics_of(tester, two) == metrics_of(tester, alone)
    for shares in outcomes_of(tester, two):
        assert not shares or sum(shares) == pytest.approx(1)
    assert any(outcomes_of(tester, two))
    manifest = json.loads((tester.folder / two.json["run"] / "manifest.json").read_text())
    names = {plugin["kind"]: plugin["name"] for plugin in manifest["plugins"]}
    assert (names["runtime"], names["transfer"]) == ("local", "shared")


def test_ranks_that_get_only_what_they_compute_on_make_the_run_of_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(run={"num_episodes": 4, "max_steps": 6})
    alone = tester.run("train", config, "--json").assert_ok()
    planned: list[int] = []
    plan = TrainerRanks.plan

    def counted(ranks: TrainerRanks, order: BatchOrder, *outlines: Any) -> Any:
        planned.append(order.order.version)
        return plan(ranks, order, *outlines)

    monkeypatch.setattr(batch_reader, "_WORTH_SHARING", 0)
    monkeypatch.setattr(TrainerRanks, "plan", counted)
    several = tester.run("train", config, "--json", "--runtime", "local", "-i", "2", "-t", "2").assert_ok()
    assert weights_of(tester, several) == weights_of(tester, alone)
    assert planned == list(range(6))


def children(pid: int) -> dict[int, str]:
    """Descendants of a process and what they were started with."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            status, command = (entry / "stat").read_text(), (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        except OSError:
            continue
        if int(status.rpartition(")")[2].split()[1]) == pid:
            found[int(entry.name)] = command
    return found


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_a_producer_that_dies_or_stops_is_replaced_and_the_run_goes_on(tmp_path: Path, number: signal.Signals) -> None:
    tester, config = project(
        tmp_path,
        run={"num_episodes": 40, "max_steps": 60},
        schedule={"max_staleness": 1, "producer_deadline": 2.0, "heartbeat_deadline": 10.0},
        weights={"deadline": 2.0},
    )
    with BackgroundRun(tester, ("train", config, "--json"), tmp_path) as run:
        run.reach(3)
        workers = {pid: said for pid, said in children(run.process.pid).items() if '"producer-0"' in said}
        assert len(workers) == 1, children(run.process.pid)
        os.kill(next(iter(workers)), number)
        outcome = run.outcome()
    assert outcome.exit_code == 0, outcome
    assert outcome.summary["ledger"]["trained"] == 60 * 3
    assert "warning: producer-0 was lost (" in str(outcome)
    assert "producer-0.1 takes its place" in str(outcome)
    if number is signal.SIGSTOP:
        assert "killed by signal 9" not in str(outcome)  # it is said why
    peaks = outcome.summary["peak_memory"]
    assert {"driver", "trainer-0", "producer-0.1"} <= set(peaks)
    assert outcome.summary["peak_memory_bytes"] == sum(peaks.values())
    assert all(10 << 20 < peak < 10 << 30 for peak in peaks.values())


@pytest.mark.interpreter
@pytest.mark.full
def test_a_producer_that_is_stopped_while_it_first_loads_ends_the_run_at_the_deadline(tmp_path: Path) -> None:
    tester, config = project(tmp_path, schedule={"max_staleness": 1, "producer_load_deadline": 6.0})
    with BackgroundRun(tester, ("train", config), tmp_path) as run:
        workers = until(lambda: [pid for pid, said in children(run.process.pid).items() if '"producer-0"' in said], "a producer")
        os.kill(workers[0], signal.SIGSTOP)
        others = children(run.process.pid)
        outcome = run.outcome()
    assert outcome.exit_code == 1, outcome
    assert "producer-0 did not load within 6 s; check whether its process is stopped or overloaded, or raise" in outcome.error
    assert "--producer-load-deadline" in outcome.error
    assert not [pid for pid in others if Path(f"/proc/{pid}").exists()]


def test_a_trainer_that_dies_ends_the_run_and_nothing_is_left(tmp_path: Path) -> None:
    schedule = {"max_staleness": 1, "max_restores": 0}
    tester, config = project(tmp_path, run={"num_episodes": 4000, "max_steps": 6000}, schedule=schedule)
    with BackgroundRun(tester, ("train", config), tmp_path) as run:
        run.reach(2)
        others = children(run.process.pid)
        (rank,) = [pid for pid, said in others.items() if '"trainer rank 0"' in said]
        os.kill(rank, signal.SIGKILL)
        outcome = run.outcome()
    assert outcome.exit_code == 1, outcome
    assert "trainer rank 0 of 1 died (killed by signal 9" in outcome.error
    assert not [pid for pid in others if Path(f"/proc/{pid}").exists()]


@pytest.mark.full
def test_a_producer_and_a_trainer_in_another_environment_train_the_same(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    environment = str(other_environment(tmp_path / "env"))
    install_engine_there(tester.plugins)
    alone = RunTester(tmp_path, in_process=True).run("train", config, "--json").assert_ok()
    apart = ("-b", "there", "--inference-environment", environment, "--training-environment", environment)
    assert weights_of(tester, tester.run("train", config, "--json", *apart).assert_ok()) == weights_of(tester, alone)


def test_a_folder_without_a_python_is_no_environment(tmp_path: Path) -> None:
    config = project(tmp_path)[1]
    refused = RunTester(tmp_path, in_process=True).run("train", config, "--training-environment", str(tmp_path))
    refused.assert_refused("--training-environment", "has no bin/python; make one:")
