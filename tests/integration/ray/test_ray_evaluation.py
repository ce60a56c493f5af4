"""A producer that dies while it evaluates: the evaluation is made again, all of it by one version."""

from __future__ import annotations

import pytest

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import Killer, fault_run, until

KILLS = 2


@pytest.mark.nightly
def test_an_evaluation_is_made_again_by_one_version(cluster: SmallCluster, tester: RunTester, killer: Killer) -> None:
    slots = tester.folder / "slots"
    engine = {"options": {"seconds": 0.4, "slots": str(slots)}}
    config = fault_run(tester, 6, eval={"eval_interval": 3}, inference=engine, sampling={"num_generations": 4})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        until(lambda: any(slot.stat().st_size for slot in slots.glob("*")) or run.over, "the first evaluation")
        killer.kill(run, lambda: run.actors("ProducerWorker"), "a producer that evaluates")
        run.reach(6)
        killer.kill(run, lambda: run.actors("ProducerWorker"), "a producer")
        outcome = run.outcome()
    outcome.balances(36, staleness=2)
    assert killer.kills == KILLS
    evaluated = [row["step"] for row in outcome.rows("metrics.jsonl") if "eval/held" in row]
    assert evaluated[0] == 0
    assert evaluated[-1] == 12
    assert evaluated == sorted(set(evaluated)), "a version was evaluated twice"
