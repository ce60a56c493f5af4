"""A group filter that leaves little or nothing to train, in whole runs: warned of, counted, ended with a reason; never a silent wait."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.interfaces import OptimizerSettings
from rlcore.learning import learning_rate
from rlcore.testing import RunOutcome, RunTester
from tests.ray_in_one_process import ray_in_one_process

REWARDS = """
from rlcore.api import Reward, Score

def scored(accuracy) -> Score:
    return Score(value=accuracy or 0.0, accuracy=accuracy)

def wrong(item) -> Score:
    return scored(0.0)

def right(item) -> Score:
    return scored(1.0)

def silent(item) -> Score:
    return scored(None)

def first(item) -> Score:
    "Half right for the letter a, wrong for all others."
    return scored(0.5 if item.columns["gt_answer"] == "a" else 0.0)
"""

ENDLESS = {"num_episodes": 10**6, "max_steps": 10**6}
STALENESS = pytest.mark.parametrize("staleness", [0, 1], ids=["in turns", "at the same time"])
REPLACING = pytest.mark.parametrize("replacing", [[], ["--dynamic-batching"]], ids=["masked", "replaced"])


@pytest.fixture
def at_hand(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What overlaps is played on Ray's crew, in this process: it takes a tenth of the time of processes, which two tests below start."""
    with ray_in_one_process(monkeypatch):
        yield


def endless(staleness: int) -> dict[str, Any]:
    return {**ENDLESS, "runtime": "ray" if staleness else "in_process"}


def project(tmp_path: Path, letters: str = "abcdef", **sections: Any) -> tuple[RunTester, str]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.write("rewards.py", REWARDS)
    config = tester.fake_run(**sections)
    tester.fake_data(letters=letters)
    return tester, config


def filtered_by(reward: str) -> list[str]:
    return ["-rt", f"./rewards.py:{reward}", "--filter-range", "0.01", "0.99"]


def records(tester: RunTester, done: RunOutcome) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]


@pytest.mark.usefixtures("at_hand")
@STALENESS
@REPLACING
@pytest.mark.parametrize(
    ("reward", "words"),
    [
        ("wrong", ["accuracy 0 on average, 100 % of the groups too hard", "easier prompts", "-g"]),
        ("right", ["accuracy 1 on average", "100 % too easy", "harder prompts"]),
        ("silent", ["accuracy was given for none of 31 groups", "--filter-by"]),
    ],
)
def test_a_run_that_starves_warns_and_ends_with_the_range_and_the_accuracy(
    tmp_path: Path, reward: str, words: list[str], replacing: list[str], staleness: int
) -> None:
    tester, config = project(tmp_path, run=endless(staleness), schedule={"max_staleness": staleness})
    done = tester.run("train", config, *filtered_by(reward), *replacing)
    assert done.exit_code == 1
    said = done.stderr.splitlines()[-1]
    for word in ["31 of 31 groups", "filter_range 0.01 0.99", "filter_limit 10 allows 30 (batches of 3)", "--filter-limit none", *words]:
        assert word in said
    (warning,) = [line for line in done.stdout.splitlines() if line.startswith("warning: for one update")]
    assert "11 of 11 groups" in warning
    assert "Traceback" not in done.stderr
    assert not [path for path in done.written if "checkpoints" in path.parts]


@pytest.mark.usefixtures("at_hand")
@STALENESS
@pytest.mark.parametrize("seconds", [0.0, 0.3], ids=["saved at once", "saved beside the training"])
def test_what_was_learnt_before_it_starved_is_saved(tmp_path: Path, staleness: int, seconds: float) -> None:
    tester, config = project(
        tmp_path,
        "aaaaaaaaa" + "bcdef" * 10,
        run=endless(staleness),
        schedule={"max_staleness": staleness},
        data={"shuffle": False},
        training={"options": {"save_seconds": seconds}},
    )
    done = tester.run("train", config, *filtered_by("first"), "--dynamic-batching", "--filter-limit", "5")
    assert done.exit_code == 1
    said = done.stderr.splitlines()[-1]
    assert "filter_limit 5 allows 15" in said
    (latest,) = [path.parent for path in done.written if path.name == "checkpoint.json"]
    assert latest.name == "step-3"
    assert str(latest) in said
    assert len([line for line in done.stdout.splitlines() if line.startswith("step ")]) == 3


@STALENESS
def test_a_run_that_was_mostly_filtered_says_so_at_its_end(tmp_path: Path, staleness: int) -> None:
    tester, config = project(
        tmp_path,
        run={"num_episodes": 4, "max_steps": 1000},
        schedule={"max_staleness": staleness},
        training={"train_batch_size": 1},
    )
    flags = [*filtered_by("first"), "--dynamic-batching", "--filter-limit", "20"]
    done = tester.run("train", config, *flags, "--json").assert_ok()
    assert done.json["ledger"] == {"trained": 4, "filtered": 20, "failed": 0}
    (remark,) = done.json["remarks"]
    assert remark.startswith("20 of 24 groups were removed by filter_range 0.01 0.99 (accuracy 0.0833 on average, 83 % of the groups too")
    filter_of_the_run = done.json["filter"]
    assert filter_of_the_run.pop("accuracy") == pytest.approx(0.5 / 6)
    assert filter_of_the_run.pop("too_hard") == pytest.approx(20 / 24)
    assert filter_of_the_run.pop("starved_updates") in range(3)  # at most 10 groups lie between two of letter a: beyond a third of 20 is 7
    assert filter_of_the_run == {"too_easy": 0.0, "filtered": 20, "groups": 24}
    seen = records(tester, done)
    assert len(seen) == 4
    for record in seen:
        assert record["filter/accuracy"] == pytest.approx(0.5 / (record["groups/filtered"] + 1))
    assert sum(record["groups/filtered"] for record in seen) <= 20  # what was filtered after the last update belongs to none
    assert remark in tester.run("train", config, *flags).assert_ok().stdout


def test_masked_groups_are_figures_of_their_own_batch(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"num_episodes": 2, "max_steps": 4}, data={"shuffle": False})
    done = tester.run("train", config, *filtered_by("first"), "--json").assert_ok()
    seen = records(tester, done)
    assert [record["groups/filtered"] for record in seen] == [2.0, 3.0, 2.0, 3.0]
    assert [record["groups/masked"] for record in seen] == [2.0, 3.0, 2.0, 3.0]
    assert [record["filter/accuracy"] for record in seen] == pytest.approx([0.5 / 3, 0.0, 0.5 / 3, 0.0])
    assert done.json["filter"]["starved_updates"] == 0


def test_warnings_of_starved_updates_are_counted_and_become_rare(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"num_episodes": 9, "max_steps": 9}, data={"shuffle": False}, training={"train_batch_size": 1})
    done = tester.run("train", config, *filtered_by("first"), "--dynamic-batching", "--filter-limit", "6", "--json").assert_ok()
    assert done.json["filter"]["starved_updates"] == 8  # the first update has the letter a before all others
    said = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert [line.rpartition("it is ")[2].split(" of this run")[0] for line in said] == [
        "the first update to cost so much",
        "one of 2 updates to cost so much",
        "one of 4 updates to cost so much",
        "one of 8 updates to cost so much",
    ]


@pytest.mark.parametrize("flags", [["-ibs", "1"], ["-ibs", "2"]])
def test_the_cut_of_the_waves_does_not_move_the_end(tmp_path: Path, flags: list[str]) -> None:
    tester, config = project(tmp_path, "abbbbbbbbbbbb", run=ENDLESS)
    words = [*filtered_by("first"), "--dynamic-batching", "--filter-limit", "2"]
    first = tester.run("train", config, *words)
    second = tester.run("train", config, *words, *flags)
    assert first.exit_code == second.exit_code == 1
    assert first.stderr.splitlines()[-1].partition("; the policy")[0] == second.stderr.splitlines()[-1].partition("; the policy")[0]


def test_the_reward_that_the_filter_reads_is_named(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run=ENDLESS)
    done = tester.run("train", config, *filtered_by("wrong"), "--filter-by", "./rewards.py:wrong")
    assert done.exit_code == 1
    assert "the accuracy of reward wrong 0 on average" in done.stderr.splitlines()[-1]


def test_a_run_without_a_limit_goes_through_all_its_prompts_and_then_says_why_nothing_was_trained(tmp_path: Path) -> None:
    tester, config = project(tmp_path, run={"num_episodes": 30, "max_steps": 10**6})
    done = tester.run("train", config, *filtered_by("wrong"), "--dynamic-batching", "--filter-limit", "none")
    assert done.exit_code == 1
    said = done.stderr.splitlines()[-1]
    assert "nothing was trained: of 180 prompts, 180 filtered by filter_range 0.01 0.99 (accuracy 0 on average" in said
    assert "there is no limit" in next(line for line in done.stdout.splitlines() if line.startswith("warning:"))


def test_without_a_filter_nothing_of_it_is_written(tmp_path: Path) -> None:
    tester, config = project(tmp_path)
    done = tester.run("train", config, "-rt", "./rewards.py:wrong", "--json").assert_ok()
    assert (done.json["filter"], done.json["remarks"]) == ({}, [])
    assert not [name for record in records(tester, done) for name in record if name.startswith("filter/") or name == "groups/filtered"]


@pytest.mark.full
@pytest.mark.parametrize("staleness", [pytest.param(0, id="in turns"), pytest.param(1, id="at the same time", marks=pytest.mark.nightly)])
def test_a_real_model_whose_answers_are_cut_short_starves(tmp_path: Path, staleness: int) -> None:
    """The quickstart's model with the DAPO recipe: nothing that fits into four tokens is a right answer."""
    words = [
        "-a",
        "dapo",
        "--filter-range",
        "0.01",
        "0.99",
        "--dynamic-batching",
        "-mnt",
        "4",
        "-tbs",
        "4",
        "-g",
        "4",
        "--filter-limit",
        "3",
    ]
    done = RunTester(tmp_path).run("quickstart", "here", *words, "--max-staleness", str(staleness))
    assert done.exit_code == 1
    assert "13 of 13 groups were removed by filter_range 0.01 0.99 (accuracy 0 on average" in done.stderr.splitlines()[-1]
    assert len([line for line in done.stdout.splitlines() if line.startswith("warning: for one update")]) == 1


MANY_STEPS = """
from rlcore.api import AlgorithmSpec, hookimpl
rlcore_api = "2.0"
@hookimpl
def rlcore_register_algorithms():
    defaults = {"algorithm.updates_per_batch": (8, "nowhere")}
    return [AlgorithmSpec(name="many", estimator="fake", loss="fake", defaults=defaults, summary="Eight steps a batch")]
"""


def test_a_recipe_s_steps_per_batch_are_as_many_as_the_batch_has_prompts_and_the_learning_rate_knows(tmp_path: Path) -> None:
    training = {"min_lr_ratio": 0.25, "learning_rate": 0.1}
    tester, config = project(tmp_path, algorithm={"name": "many"}, training=training, run={"max_steps": 2})
    tester.plugins.install("many", MANY_STEPS)
    done = tester.run("train", config, "--json").assert_ok()
    assert "updates_per_batch = 8 (recipe many): a batch of 3 prompts makes 3 optimizer steps" in done.stderr
    seen = records(tester, done)
    assert [record["optimizer_steps"] for record in seen] == [3.0, 3.0]
    schedule = OptimizerSettings(
        learning_rate=0.1, betas=(0.9, 0.95), weight_decay=0.0, max_grad_norm=1.0, warmup_steps=0, min_lr_ratio=0.25, total_steps=6
    )
    for update, record in enumerate(seen):
        rates = [learning_rate(schedule, 3 * update + step) for step in range(3)]
        assert record["learning_rate"] == pytest.approx(sum(rates) / 3)
    again = tester.run("train", str(Path(done.json["run"]) / "run.toml"), "--dry-run").assert_ok()  # what was run can be run again
    assert "makes 3 optimizer steps" in again.stdout


@STALENESS
def test_ctrl_c_ends_a_run_that_only_waits(tmp_path: Path, staleness: int) -> None:
    """No batch ever comes, and no limit ends it: the user does, once."""
    tester, config = project(tmp_path, run=ENDLESS)
    flags = [*filtered_by("wrong"), "--dynamic-batching", "--filter-limit", "none", "--max-staleness", str(staleness)]
    done = tester.interrupt("train", config, *flags, on=lambda line: "warning: for one update" in line)
    assert done.exit_code == 130, done.stdout
    assert "nothing was trained" not in done.stdout
