"""The judge, a reward worker and the store of a node killed, and the judge and the store stopped: verdicts and groups are made again, and
nobody notices but the clock."""

from __future__ import annotations

import json
import random
import signal
import time
from collections import Counter

from rlcore.testing import RunTester
from tests.integration.ray.conftest import SmallCluster, joined
from tests.integration.ray.faults import Killer, fault_run, processes_of

KILLS = 5
EPISODES = 16
KILLED_BEFORE, STOPPED_AFTER = 14, (18, 23)
"""Updates, of 32. What is stopped is noticed after some seconds, in which the run may go on or wait."""
OBSERVER = """
import json, pathlib
from rlcore.api import hookimpl

rlcore_api = "2.0"

@hookimpl
def rlcore_groups_scored(groups, version):
    with pathlib.Path("scored.jsonl").open("a") as file:
        for group in groups:
            file.write(json.dumps([group.prompt_id, group.episode]) + "\\n")
"""


def test_judges_reward_workers_and_stores_that_die_or_stop_are_replaced(cluster: SmallCluster, tester: RunTester, killer: Killer) -> None:
    tester.plugins.install("witness", OBSERVER)
    chance = random.Random(4)
    config = fault_run(tester, EPISODES, schedule={"heartbeat_deadline": 5.0})
    with joined(tester, cluster, config, "-i", "2", "-t", "1") as run:
        victims = {
            "the judge": lambda: run.actors("JudgeActor"),
            "a reward worker": lambda: [process for process in processes_of(tester.folder) if "rlcore.rewards.worker" in process.title],
            "the store": lambda: run.actors("GroupStore"),
        }
        names = ["the judge", "a reward worker", "the store", "the store", "the judge"]
        assert len(names) == KILLS
        for name, step in zip(names, sorted(chance.sample(range(1, KILLED_BEFORE), KILLS)), strict=True):
            run.reach(step)
            time.sleep(chance.uniform(0.0, 0.1))
            killer.kill(run, victims[name], name, chance)
        for step, cls, name in zip(STOPPED_AFTER, ("JudgeActor", "GroupStore"), ("judge", "store"), strict=True):
            run.reach(step)
            run.strike(cls, signal.SIGSTOP)
            run.said(f"^warning: the {name} of its node was lost \\(its process has not answered for 5 s\\); it is killed and restarted$")
        outcome = run.outcome()
    outcome.balances(6 * EPISODES, staleness=2).learned()
    seen = Counter(map(tuple, map(json.loads, (tester.folder / "scored.jsonl").read_text().splitlines())))
    assert len(seen) > 5 * EPISODES, "observers saw most groups; what a store had not told when it died is lost to them"
