"""Agents on Ray: two producers with a gateway process each, and two trainer ranks."""

from __future__ import annotations

import os
import signal

import pytest

from rlcore.testing import RunTester
from tests.agent_runs import agent_run, complete
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import BackgroundRun, until
from tests.process_family import await_end, descendants

SECTIONS = {"run": {"num_episodes": 4, "max_steps": 8, "runtime": "ray"}, "inference": {"inference_batch_size": 3}}


def families(run: BackgroundRun) -> dict[int, list[int]]:
    """The processes below each producer, once both have a guard, a gateway and a program. They work elsewhere than Ray's own."""

    def found() -> dict[int, list[int]] | None:
        below = {actor.pid: descendants(actor.pid) for actor in run.actors("ProducerWorker")}
        return below if len(below) == 2 and all(len(pids) >= 3 for pids in below.values()) else None

    below: dict[int, list[int]] = until(lambda: run.over or found(), "the programs of two producers")
    assert not run.over, run.outcome()
    return below


def test_two_producers_and_two_ranks_train_on_episodes(cluster: SmallCluster, tester: RunTester) -> None:
    with joined(tester, cluster, agent_run(tester, **SECTIONS), "-i", "2", "-t", "2") as run:
        pids = [pid for family in families(run).values() for pid in family]
        outcome = run.outcome()
    complete(outcome, tester.folder, steps=8, prompts=24)
    assert len(list(tester.folder.glob("engine-*.jsonl"))) == 2, "both producers answered"
    await_end(pids, 30.0)


def test_slow_episodes_are_cut_and_others_continue_over_updates(cluster: SmallCluster, tester: RunTester) -> None:
    sampling = {"oversampling": 2, "environment": "./agent.py:play", "num_generations": 4, "max_new_tokens": 16, "max_context_tokens": 200}
    schedule = {"max_staleness": 1, "partial_rollouts": True, "reward_workers": 1}
    sections = {**SECTIONS, "sampling": {**sampling, "options": {"workers": 4, "deadline": 600.0}}, "schedule": schedule}
    with joined(tester, cluster, agent_run(tester, thinks=1.0, **sections), "-i", "2", "-t", "2") as run:
        outcome = run.outcome()
    complete(outcome, tester.folder, steps=8, prompts=24, staleness=8)
    rows = [row for row in outcome.rows("metrics.jsonl") if "staleness/max" in row]
    assert any(row.get("cut_share", 0.0) > 0 for row in rows)
    assert all(0 <= row["in_flight"] <= 6 for row in rows), "two batches of three, less the one that is complete, and what is buffered"


@pytest.mark.nightly
def test_a_producer_that_is_killed_takes_its_agents_along_and_its_episodes_are_played_again(
    cluster: SmallCluster, tester: RunTester
) -> None:
    config = agent_run(tester, thinks=0.3, **SECTIONS, schedule={"producer_restarts": 5})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        run.reach(2)
        victim, family = next(iter(families(run).items()))
        os.kill(victim, signal.SIGKILL)
        await_end(family, 30.0)
        outcome = run.outcome()
    assert "producers were restarted 1 time" in str(outcome)
    complete(outcome, tester.folder, steps=8, prompts=24)
