"""Whole runs of the Ray runtime, played in one process: turns on one device, the probe in every snapshot, stale weights, groups that are
forgotten once they are trained, what a reward raises in an evaluation, an engine that hangs, backends that are closed."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import Snapshot
from rlcore.api.runtime import Producer
from rlcore.testing import FakeInference, FakeTraining, RunOutcome, RunTester
from tests.ray_in_one_process import Stage, ray_in_one_process

BATCH = 3
"""Prompts of an update, as ``fake_run`` has it."""


def run(folder: Path, patch: pytest.MonkeyPatch, *flags: str, nodes: int = 1, **sections: Any) -> tuple[Stage, RunOutcome]:
    """Train on fakes; what it was played on, and what came of it."""
    tester = RunTester(folder, in_process=True).with_fakes()
    with ray_in_one_process(patch, nodes) as stage:
        return stage, tester.run("train", tester.fake_run(**sections), "--json", "--runtime", "ray", *flags)


def test_no_engine_holds_the_device_while_the_trainer_trains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    awake: set[int] = set()
    awake_in_training: list[int] = []
    made, sleep, wake, update = FakeInference.__init__, FakeInference.sleep, FakeInference.wake, FakeTraining.update
    monkeypatch.setattr(FakeInference, "__init__", lambda self, *args: (made(self, *args), awake.add(id(self)))[0])
    monkeypatch.setattr(FakeInference, "sleep", lambda self, level: (sleep(self, level), awake.remove(id(self)))[0])
    monkeypatch.setattr(FakeInference, "wake", lambda self: (wake(self), awake.add(id(self)))[0])

    def trained(self: FakeTraining, *args: Any) -> Any:
        awake_in_training.append(len(awake))
        return update(self, *args)

    monkeypatch.setattr(FakeTraining, "update", trained)
    run(tmp_path, monkeypatch, "-i", "2", "--placement", "colocated", "--max-steps", "3")[1].assert_ok()
    assert awake_in_training == [0, 0, 0]


@pytest.mark.parametrize("probe", [True, False])
def test_every_version_has_its_probe_unless_none_is_wanted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, probe: bool) -> None:
    taken: list[Snapshot] = []
    load = Producer.load
    monkeypatch.setattr(Producer, "load", lambda self, snapshot: (taken.append(snapshot), load(self, snapshot))[1])
    run(tmp_path, monkeypatch, "-i", "1", weights={"probe": probe}, run={"max_steps": 3})[1].assert_ok()
    served = [(snapshot.version, snapshot.probe is not None) for snapshot in taken[:3]]  # of the last one the run waits for nobody
    assert served == [(0, probe), (1, probe), (2, probe)]


@pytest.mark.parametrize("who", ["the trainer", "the engine"])
def test_stale_weights_end_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str) -> None:
    """Whole, sealed, and of an older version: a trainer that hands out what it had, an engine that takes nothing and says that it has."""
    first: list[Any] = []
    source = FakeTraining.weight_source
    if who == "the trainer":
        monkeypatch.setattr(FakeTraining, "weight_source", lambda self: (first or first.append(source(self)) or first)[0])
    engine = {"name": "faulty", "options": {"fault": "stale"}} if who == "the engine" else {}
    monkeypatch.setattr("rlcore_plugin_workers.driver_loop.DriverLoop.cause", None)  # nobody waits for the news of a death behind it
    monkeypatch.setattr("rlcore.runtime.recovery._PAUSE_SECONDS", 0.01)
    _, outcome = run(tmp_path, monkeypatch, "-i", "2", inference=engine)
    assert outcome.exit_code == 1, outcome
    said = outcome.stderr.splitlines()[-1]
    assert re.search(r"error: producer producer-[01] does not serve version \d+: its probe log probabilities differ", said), outcome


@pytest.mark.parametrize("algorithm", [{}, {"filter_range": [0.01, 0.99], "dynamic_batching": True, "filter_limit": 1000}])
def test_stores_keep_no_group_that_was_trained_or_filtered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, algorithm: dict[str, Any]
) -> None:
    settings = {"run": {"num_episodes": 8, "max_steps": 6}, "schedule": {"max_staleness": 1}, "algorithm": algorithm}
    stage, outcome = run(tmp_path, monkeypatch, "-i", "2", nodes=2, **settings)
    outcome.assert_ok()
    kept = [lease_id for name, store in stage.made.items() if name.startswith("store") for lease_id in store._groups]
    waiting = BATCH * 2  # made for updates that never came: one batch a version of staleness, and the one after
    assert len(kept) <= BATCH + waiting, f"of {outcome.json['ledger']}: {sorted(kept)}"


STRICT = """
def strict(item):
    if item.columns["gt_answer"] == "held out":
        raise ValueError("not this one")
    return 1.0
"""


def test_what_a_reward_raises_in_an_evaluation_spends_no_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A budget of 0: one such verdict in training would end the run."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("strict.py", STRICT)
    rows = [{"messages": {"role": "user", "content": letter}, "gt_answer": "held out"} for letter in "abc"]
    config = tester.fake_run(eval={"eval_dataset": {"held": str(tester.write_jsonl("held.jsonl", rows))}, "eval_interval": 1})
    flags = ("--reward", "./strict.py:strict", "--reward-error-budget", "0")
    with ray_in_one_process(monkeypatch):
        done = tester.run("train", config, "--json", "--runtime", "ray", "-i", "1", *flags).assert_ok()
    written = [json.loads(line) for line in (tmp_path / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    assert [row["eval/held/failed"] for row in written if "eval/held/failed" in row] == [3.0] * 4
    assert not [name for row in written for name in row if name == "reward/outcome/error"]


def test_an_engine_that_hangs_is_replaced_by_one_that_does_the_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    go, hung, slow = threading.Event(), threading.Event(), list[FakeInference]()
    poll, made = FakeInference.poll, FakeInference.__init__

    def polled(self: FakeInference, timeout: float) -> Any:
        if not hung.is_set() and (self._running or self._waiting):
            hung.set()
            go.wait()
        return poll(self, timeout)

    def loaded(self: FakeInference, *args: Any) -> None:
        if hung.is_set() and not slow:  # the first that takes its place needs longer to load than an engine has for an answer
            slow.append(self)
            time.sleep(0.6)
        made(self, *args)

    monkeypatch.setattr(FakeInference, "poll", polled)
    monkeypatch.setattr(FakeInference, "__init__", loaded)
    schedule = {"max_staleness": 1, "producer_deadline": 0.5, "producer_restarts": 100}
    stage, outcome = run(tmp_path, monkeypatch, "-i", "1", schedule=schedule)
    go.set()
    outcome.assert_ok()
    assert outcome.json["ledger"]["trained"] == BATCH * outcome.json["steps"] > 0
    assert {"producer-0", "producer-0.1"} <= set(stage.made)
    assert "its engine FakeInference has not come back for 0.5 s" in outcome.stderr
    assert slow
    assert "its model did not load" not in outcome.stderr


@pytest.mark.parametrize("fails", ["", "setup", "update"])
def test_every_trainer_rank_closes_its_backend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str) -> None:
    """However the run ends: a backend that nobody closes keeps the connections and the threads of its process group."""
    made, closed = set[int](), set[int]()
    setup, close = FakeTraining.setup, FakeTraining.close
    monkeypatch.setattr(FakeTraining, "setup", lambda self, context: (made.add(context.rank), setup(self, context))[1])
    monkeypatch.setattr(FakeTraining, "close", lambda self: (closed.add(self.ranks.rank), close(self))[1])
    if fails:
        whole = getattr(FakeTraining, fails)

        def planted(self: FakeTraining, *args: Any) -> Any:
            answer = whole(self, *args)
            if self.ranks.rank == 1:
                raise ZeroDivisionError("planted")
            return answer

        monkeypatch.setattr(FakeTraining, fails, planted)
    _, outcome = run(tmp_path, monkeypatch, "-i", "1", "-t", "2", "--max-steps", "2")
    assert (outcome.exit_code == 0) == (not fails), outcome
    assert "planted" in outcome.stderr or not fails, outcome
    assert made == closed == {0, 1}


def test_shared_memory_is_refused_where_the_roles_are_on_two_hosts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On one host it is taken, however many nodes of Ray there are."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    argv = ("train", tester.fake_run(), "--json", "--runtime", "ray", "--transport", "shared", "-i", "1", "--max-steps", "1")
    with ray_in_one_process(monkeypatch, nodes=2) as stage:
        tester.run(*argv).assert_ok()
        apart = [replace(node, address=f"10.0.0.{number}") for number, node in enumerate(stage.nodes())]
        monkeypatch.setattr(stage, "nodes", lambda: apart)
        refused = tester.run(*argv)
    assert refused.exit_code == 2, refused
    assert "shared reaches one host, and producers and trainers are on 2 hosts; type --transport object_store" in refused.stderr
