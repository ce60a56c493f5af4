"""Producers killed at random moments: the ledger balances, nothing is trained twice or too old, and the run ends trained."""

from __future__ import annotations

import os
import random
import re
import signal
import time

import numpy as np
import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import BackgroundRun, Killer, Outcome, fault_run

STORM, ON_POLICY, RANKS = 12, 6, 5
KILLS = STORM + ON_POLICY + RANKS


def _storm(run: BackgroundRun, killer: Killer, seed: int, kills: int, updates: int) -> Outcome:
    """Kill producers, also those that are just starting, at random moments of a run of so many updates."""
    chance = random.Random(seed)
    for step in sorted(chance.sample(range(1, updates - 8), kills)):
        run.reach(step)
        time.sleep(chance.uniform(0.0, 0.2))
        killer.kill(run, lambda: run.actors("ProducerWorker"), "a producer", chance)
    return run.outcome()


def test_a_storm_of_kills_loses_and_doubles_nothing(cluster: SmallCluster, tester: RunTester, killer: Killer) -> None:
    with joined(tester, cluster, fault_run(tester, 16), "-i", "3", "-t", "1") as run:
        outcome = _storm(run, killer, 1, STORM, 32)
    outcome.balances(6 * 16, staleness=2).learned()
    assert killer.kills == STORM
    assert f"producers were restarted {STORM} times" in str(outcome)
    assert "(raylet)" not in str(outcome), "Ray's own words are in the output"


def test_on_policy_the_weights_are_those_of_a_run_in_one_process_whoever_dies(
    cluster: SmallCluster, tester: RunTester, killer: Killer
) -> None:
    config = fault_run(tester, 12, schedule={"max_staleness": 0})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        outcome = _storm(run, killer, 2, ON_POLICY, 24)
    outcome.balances(6 * 12, staleness=0).learned()
    alone = RunTester(tester.folder, in_process=True).run("train", config, "--runtime", "local", "--project", "alone").assert_ok()
    (saved,) = [tester.folder / path for path in alone.written if path.match("alone/*/checkpoints/step-24/model/fake_policy.npz")]
    assert outcome.folder is not None
    with np.load(saved) as expected, np.load(outcome.folder / "checkpoints/step-24/model/fake_policy.npz") as found:
        assert {name: found[name].tobytes() for name in found} == {name: expected[name].tobytes() for name in expected}


def stop_before_an_update(run: BackgroundRun, victim: int) -> None:
    """Stop a producer so that a version is published after it. If the next batch lacks what the victim was generating, none is (only
    `producer_deadline` ends it then), so it goes on and is stopped again a step later."""
    for _ in range(10):
        step = run.step
        os.kill(victim, signal.SIGSTOP)
        patience = time.monotonic() + 5.0
        while time.monotonic() < patience:
            if run.step > step + 1:  # the next step may have been at its end already, and its version taken
                return
            time.sleep(0.05)
        os.kill(victim, signal.SIGCONT)
        run.reach(step + 1)
    pytest.fail("each time the next batch needed the producer that was stopped")


def test_a_producer_that_is_stopped_is_ended_and_replaced(cluster: SmallCluster, tester: RunTester) -> None:
    """SIGSTOP, while it maps a buffer of weights: its own watchdog stands still with it, and the publisher ends it."""
    config = fault_run(tester, 16, weights={"deadline": 2.0})
    with joined(tester, cluster, config, "-i", "2", "-t", "1", "--transport", "shared") as run:
        run.reach(5)
        victim = run.actors("ProducerWorker")[0].pid
        stop_before_an_update(run, victim)
        outcome = run.outcome()
    outcome.balances(6 * 16, staleness=2).learned()
    said = (
        rf"warning: producer-\d was lost \(producer producer-\d \(process {victim}\) (kept version|verified nothing of version) \d+ for 2 s"
        r".*, so it was ended"
    )
    assert re.search(said, str(outcome)), outcome
    assert "producers were restarted 1 time;" in str(outcome), outcome


def test_an_engine_that_loses_a_process_in_the_middle_of_an_update_is_replaced(cluster: SmallCluster, tester: RunTester) -> None:
    """It writes in place, so it is torn; what it would generate with half of the new weights would fail the probe, and is never made."""
    kill_file = tester.folder / "kill"
    engine = {"name": "fake-tensor", "producer_tensor_parallel_size": 2, "options": {"kill_file": str(kill_file)}}
    config = fault_run(tester, 16, inference=engine, weights={"bucket_mb": 1})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        run.reach(5)
        kill_file.touch()
        outcome = run.outcome()
    assert not kill_file.exists()
    outcome.balances(6 * 16, staleness=2).learned()
    assert re.search(r"producer-\d was lost \(.*worker 1 of 2 of the fake engine died", str(outcome)), outcome
    assert "producers were restarted 1 time;" in str(outcome), outcome


@pytest.mark.nightly
def test_kills_with_two_ranks_a_group_filter_and_weights_through_the_object_store(
    cluster: SmallCluster, tester: RunTester, killer: Killer
) -> None:
    config = fault_run(tester, 12, algorithm={"filter_range": [0.0, 1.0], "filter_limit": 1000})
    with joined(tester, cluster, config, "-i", "2", "-t", "2", "--transport", "object_store") as run:
        outcome = _storm(run, killer, 3, RANKS, 24)
    outcome.balances(6 * 12, staleness=2)
    assert killer.kills == RANKS
