"""Policies, budgets and tracebacks of rewards in whole runs, from the configuration to the run folder."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.ray_in_one_process import ray_in_one_process

MINE = """
from rlcore.api import Outcome, Reward, Score

class Mine(Reward):
    def notice(self):
        return "judges by hand"

    def score(self, item):
        if item.text.startswith("b"):
            return {}["no such key"]
        return Score(value=1.0, accuracy=1.0, outcome=Outcome.OK)
"""


HELD_OUT = """
from rlcore.api import Reward, Score

class HeldOut(Reward):
    requires = ("gt_answer",)

    def score(self, item):
        if item.columns["gt_answer"] == "z":
            raise ValueError("cannot judge what is held out")
        return Score(value=float(len(item.text)), accuracy=1.0)
"""


def run_with(tmp_path: Path, table: str) -> tuple[RunTester, str]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    tester.write("mine.py", MINE)
    tester.write("more.toml", f'[schedule]\nreward_error_budget = 1.0\n[[rewards]]\nname = "./mine.py:Mine"\n{table}')
    done = tester.run("train", "run.toml", "more.toml")
    return tester, f"{done.exit_code} {done.stdout} {done.stderr}"


def errors(tester: RunTester) -> list[dict[str, str]]:
    (path,) = tester.folder.rglob("reward_errors.jsonl")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def test_the_traceback_of_a_reward_is_in_the_run_folder_and_its_notice_is_said_once(tmp_path: Path) -> None:
    tester, said = run_with(tmp_path, "")
    assert said.startswith("0 "), said
    assert said.count("judges by hand") == 1
    (error,) = errors(tester)
    assert error["reason"] == "KeyError: 'no such key'"
    assert 'mine.py", line 10, in score' in error["traceback"]
    assert error["text"].startswith("b")
    assert "train.jsonl:" in error["row"]


def test_a_policy_ends_the_run_and_the_traceback_is_kept(tmp_path: Path) -> None:
    tester, said = run_with(tmp_path, 'policy = { error = "stop" }\n')
    assert said.startswith("1 "), said
    assert "ended with error on a response to" in said
    assert "Traceback" not in said
    assert [error["reason"] for error in errors(tester)] == ["KeyError: 'no such key'"]


def test_a_budget_ends_the_run(tmp_path: Path) -> None:
    _, said = run_with(tmp_path, "budget = { error = 0.0 }\n")
    assert said.startswith("1 "), said
    assert "more than its budget = { error = 0 } allows" in said


@pytest.mark.parametrize("runtime", ["local", "ray"])
def test_an_evaluation_that_cannot_be_judged_spends_none_of_the_training_s_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str
) -> None:
    """On Ray whether a verdict counts travels from the producer through its node's judge."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("mine.py", HELD_OUT)
    tester.write_jsonl("held.jsonl", [{"messages": {"role": "user", "content": "z"}, "gt_answer": "z"}] * 8)
    tester.fake_run(eval={"eval_dataset": {"held": str(tmp_path / "held.jsonl")}, "eval_interval": 1})
    tester.write("more.toml", '[schedule]\nreward_error_budget = 0.0\n[[rewards]]\nname = "./mine.py:HeldOut"\nbudget = { error = 0.0 }\n')
    with ray_in_one_process(monkeypatch):
        done = tester.run("train", "run.toml", "more.toml", "--json", "--runtime", runtime).assert_ok()
    rows = [json.loads(line) for line in (tmp_path / done.json["run"] / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    assert [row["eval/held/failed"] for row in rows if "eval/held/failed" in row] == [8.0] * 4
    # On Ray the figures of a judge that answers late stand in a later row.
    assert {row["reward/outcome/ok"] for row in rows if "reward/outcome/ok" in row} == {1.0}
    assert done.json["ledger"] == {"trained": 9, "filtered": 0, "failed": 0}


COUNTING = """
import os
from pathlib import Path

from rlcore.api import Reward, Score

class Counting(Reward):
    calls = 0

    def open(self):
        self.ballast = []

    def score(self, item):
        self.calls += 1
        Path("calls").mkdir(exist_ok=True)
        Path("calls", str(os.getpid())).write_text(str(self.calls))
        self.ballast.append(b"x" * (1 << 20))
        return Score(value=1.0, accuracy=float(item.text.startswith("b")))
"""


@pytest.mark.parametrize(("setting", "most"), [("reward_worker_items = 6", 6), ("reward_worker_growth_mb = 4", 5)])
def test_workers_are_replaced_as_the_settings_say(tmp_path: Path, setting: str, most: int) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    tester.write("mine.py", COUNTING)
    tester.write(
        "more.toml", f'[run]\nmax_steps = 1\n[schedule]\nreward_workers = 1\n{setting}\n[[rewards]]\nname = "./mine.py:Counting"\n'
    )
    tester.run("train", "run.toml", "more.toml").assert_ok()
    calls = [int(path.read_text(encoding="utf-8")) for path in (tmp_path / "calls").iterdir()]
    assert len(calls) > 1
    assert max(calls) <= most


FILLING = """
import time

from rlcore.api import Reward, Score

class Filling(Reward):
    def score(self, item):
        held = b"x" * (200 << 20)
        time.sleep(600)
        return Score(value=1.0)
"""


def test_the_memory_of_a_call_is_bounded_as_the_settings_say(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.fake_run()
    tester.write("mine.py", FILLING)
    tester.write(
        "more.toml",
        "[run]\nmax_steps = 1\n[sampling]\nnum_generations = 2\n[training]\ntrain_batch_size = 1\n"  # each answer costs two workers
        "[schedule]\nreward_workers = 1\nreward_call_memory_mb = 50\n"
        '[[rewards]]\nname = "./mine.py:Filling"\ndeadline = 500\npolicy = { error = "stop" }\n',
    )
    said = tester.run("train", "run.toml", "more.toml")
    assert said.exit_code != 0
    assert "ended with error on a response" in said.stderr
    assert "one call took more than 50 MiB of memory, twice (schedule.reward_call_memory_mb)" in " ".join(said.stderr.split())
