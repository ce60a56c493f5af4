"""Runs with ``[[sources]]`` on the fakes of the kit: from configuration to metrics, logs, ledger and checkpoint."""

from __future__ import annotations

import json
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_tools.run_record import RunRecord

from rlcore.testing.run_tester import RunTester
from tests.ray_in_one_process import ray_in_one_process

ONE: dict[str, Any] = {"name": "one", "weight": 2.0, "data": {"dataset": "train.jsonl"}, "rewards": [{"name": "fake"}]}
TWO: dict[str, Any] = {
    "name": "two",
    "data": {"dataset": "second.jsonl"},
    "sampling": {"num_generations": 4, "conversation": "fake", "max_new_tokens": 6, "options": {"rounds": 2, "tokens": 1}},
    "algorithm": {"loss_variation": "token_level", "kl_coeff": 0.01},
    "rewards": [{"name": "fake", "weight": 0.5}],
    "eval": {"eval_dataset": {"held": "held.jsonl"}, "eval_samples": 2},
}


def project(folder: Path, *sources: dict[str, Any], **sections: dict[str, Any]) -> RunTester:
    """Write a run of fakes with these sources to ``run.toml``."""
    tester = RunTester(folder, in_process=True).with_fakes()
    tester.fake_data("second.jsonl", "abc")
    tester.fake_data("held.jsonl", "ab")
    text = Path(tester.fake_run(**sections)).read_text()
    config = tomllib.loads(text)
    del config["rewards"], config["data"]["dataset"]
    tester.write_toml("run.toml", {**config, "sources": list(sources)})
    return tester


def folder_of(tester: RunTester) -> Path:
    return max((tester.folder / "runs").glob("*/*"))


def rows_of(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def figures_of(tester: RunTester) -> list[dict[str, Any]]:
    """Return the rows of metrics.jsonl without times."""
    rows = rows_of(folder_of(tester) / "metrics.jsonl")
    timed = ("time/", "seconds", "tokens_per_second", "latency")
    return [{name: value for name, value in row.items() if not any(word in name for word in timed)} for row in rows]


def weights_of(tester: RunTester) -> dict[str, np.ndarray]:
    checkpoint = max((folder_of(tester) / "checkpoints").glob("step-*"), key=lambda path: int(path.name.partition("-")[2]))
    with np.load(checkpoint / "model" / "fake_policy.npz") as held:
        return {name: held[name] for name in held.files}


def rollouts_of(tester: RunTester) -> list[dict[str, Any]]:
    record, steps = RunRecord(folder_of(tester)), [row["step"] for row in figures_of(tester) if "loss" in row]
    return [row for step in steps for row in record.rollouts(step)]


def test_two_sources_train_in_one_run(tmp_path: Path) -> None:
    tester = project(tmp_path, ONE, TWO, eval={"eval_interval": 2}, run={"num_episodes": 2, "max_steps": 6})
    done = tester.run("train", "run.toml", "--json").assert_ok()
    assert done.json["ledger"] == {"trained": 18, "filtered": 0, "failed": 0}
    assert done.json["sources"] == {name: {"trained": trained, "filtered": 0, "failed": 0} for name, trained in (("one", 12), ("two", 6))}
    updates = [row for row in figures_of(tester) if "loss" in row]
    assert len(updates) == 6
    for row in updates:
        assert row["groups"] == 3
        assert (row["source/one/share"], row["source/two/share"]) == pytest.approx((2 / 3, 1 / 3))
        assert row["rollouts_in_loss"] == 2 * 8 + 4
        assert row["tokens"] == row["source/one/tokens"] + row["source/two/tokens"]
        assert row["reward/mean"] == pytest.approx((16 * row["source/one/reward"] + 4 * row["source/two/reward"]) / 20)
    evaluated = [row for row in figures_of(tester) if "eval/held" in row]
    assert [row["step"] for row in evaluated] == [0, 2, 4, 6]
    assert "eval/held/pass@2" in evaluated[0]


def test_the_rollout_log_says_the_source(tmp_path: Path) -> None:
    tester = project(tmp_path, ONE, TWO)
    tester.run("train", "run.toml").assert_ok()
    rows = rollouts_of(tester)
    assert Counter(row["source"] for row in rows) == {"one": 6 * 8, "two": 3 * 4}
    assert {len(row.get("turns", ())) > 1 for row in rows if row["source"] == "two"} == {True}
    assert {row["gold"] for row in rows if row["source"] == "two"} <= set("abc")


def test_both_sources_learn(tmp_path: Path) -> None:
    plain = {**TWO, "sampling": {"num_generations": 4}}
    training = {"learning_rate": 0.3, "train_batch_size": 6}
    tester = project(tmp_path, ONE, plain, run={"num_episodes": 60, "max_steps": 60}, training=training)
    tester.run("train", "run.toml").assert_ok()
    updates = [row for row in figures_of(tester) if "loss" in row]
    for name in ("one", "two"):
        early, late = ([row[f"source/{name}/accuracy"] for row in part] for part in (updates[:10], updates[-10:]))
        assert np.mean(late) > np.mean(early) + 0.3, name


def test_a_single_source_has_the_numbers_of_a_run_without(tmp_path: Path) -> None:
    plain = RunTester(tmp_path / "plain", in_process=True).with_fakes()
    plain.run("train", plain.fake_run()).assert_ok()
    sourced = project(tmp_path / "sourced", ONE)
    sourced.run("train", "run.toml").assert_ok()
    ours = [{name: value for name, value in row.items() if not name.startswith("source/")} for row in figures_of(sourced)]
    assert ours == figures_of(plain)
    for name, values in weights_of(plain).items():
        assert np.array_equal(values, weights_of(sourced)[name]), name


def test_a_resumed_run_ends_as_one_that_was_never_stopped(tmp_path: Path) -> None:
    whole = project(tmp_path / "whole", ONE, TWO, run={"num_episodes": 2, "max_steps": 6})
    whole.run("train", "run.toml").assert_ok()
    parted = project(tmp_path / "parted", ONE, TWO, run={"num_episodes": 2, "max_steps": 3}, training={"lr_schedule": "cosine"})
    parted.run("train", "run.toml").assert_ok()
    other = parted.run("resume", str(folder_of(parted)), "--max-steps", "6", "-g", "4")
    other.assert_refused("-g has no effect")
    parted.run("resume", str(folder_of(parted)), "--max-steps", "6").assert_ok()
    assert [row["step"] for row in figures_of(parted) if "loss" in row] == [1, 2, 3, 4, 5, 6]
    shares = [[row["source/one/share"] for row in figures_of(tester) if "loss" in row] for tester in (whole, parted)]
    assert shares[0] == shares[1]
    prompts = [[(row["source"], row["prompt_id"]) for row in rollouts_of(tester)] for tester in (whole, parted)]
    assert prompts[0] == prompts[1]


def test_a_resumed_run_refuses_another_weight_in_its_own_file(tmp_path: Path) -> None:
    """The file is then the only record of the settings, and the checkpoint tells the weight."""
    tester = project(tmp_path, ONE, TWO)
    tester.run("train", "run.toml").assert_ok()
    kept = folder_of(tester) / "run.toml"
    kept.write_text(kept.read_text().replace("weight = 2.0", "weight = 3.0"))
    done = tester.run("resume", str(folder_of(tester)), "-e", "3", "--max-steps", "6")
    assert done.exit_code == 2
    assert "the weight of source one was 2.0 when this run began and is 3.0 now" in done.stderr


def test_a_run_with_a_single_source_resumes(tmp_path: Path) -> None:
    tester = project(tmp_path, ONE)
    tester.run("train", "run.toml").assert_ok()
    tester.run("resume", str(folder_of(tester)), "-e", "3", "--max-steps", "6").assert_ok()


def test_a_command_with_another_weight_begins_a_new_run(tmp_path: Path) -> None:
    """``--resume auto`` says in which setting the newest run differs."""
    tester = project(tmp_path, ONE, TWO)
    tester.run("train", "run.toml", "--resume", "auto").assert_ok()
    config = tomllib.loads((tmp_path / "run.toml").read_text())
    config["sources"][0]["weight"] = 3.0
    tester.write_toml("heavier.toml", config)
    done = tester.run("train", "heavier.toml", "--resume", "auto", "--dry-run").assert_ok()
    assert "differs in source one: weight = 3.0; a new one begins" in done.stdout


@pytest.mark.parametrize("sourced", [False, True])
def test_a_command_with_another_option_of_the_sampler_begins_a_new_run(tmp_path: Path, sourced: bool) -> None:
    tester = project(tmp_path, ONE, TWO) if sourced else RunTester(tmp_path, in_process=True).with_fakes()
    settings = tomllib.loads((tmp_path / "run.toml" if sourced else Path(tester.fake_run())).read_text())
    for target, more in ((0.25, ()), (0.75, ("--dry-run",))):
        settings["data"] |= {"sampler": "success_rate", "sampler_options": {"target": target}}
        tester.write_toml("run.toml", settings)
        done = tester.run("train", "run.toml", "--resume", "auto", *more).assert_ok()
    assert 'sampler_options = {"target": 0.75, ' in done.stdout


def test_the_plan_and_show_config_name_every_setting_of_a_source(tmp_path: Path) -> None:
    """With the name of the source, its weight, its recipe, and the options of the samplers."""
    heavy = {**TWO, "weight": 3.0, "algorithm": {"name": "dapo", "filter_range": "none"}, "sampling": {"max_new_tokens": 8}}
    steered = {**ONE, "data": {**ONE["data"], "sampler": "replay", "sampler_options": {"age": 7}}}
    tester = project(tmp_path, steered, heavy, data={"sampler": "success_rate", "sampler_options": {"target": 0.25}})
    said = [tester.run(*words, "run.toml").assert_ok().stdout for words in (("train", "--dry-run"), ("show", "config"))]
    rows = [{tuple(line.split()) for line in text.partition("notes")[0].splitlines()} for text in said]
    for path, value in {
        "sources.two.weight": "3.0",
        "sources.two.algorithm.name": "dapo",
        "sources.one.data.sampler_options.age": "7",
        "data.sampler_options.target": "0.25",
    }.items():
        assert [(path, value, "run.toml") in found for found in rows] == [True, True], path
    assert ("sources.two.name", "two", "run.toml") in rows[1]
    assert ("data.sampler_options.newest", "0.5", "default") in rows[1]
    assert not any(row[0].startswith("sources.0") for found in rows for row in found if row)
    plain = RunTester(tmp_path / "plain", in_process=True).with_fakes()
    config = plain.fake_run(data={"sampler": "success_rate", "sampler_options": {"target": 0.25}})
    assert "data.sampler_options.target" in plain.run("train", config, "--dry-run").assert_ok().stdout


def test_a_sampler_that_refuses_is_told_with_its_setting(tmp_path: Path) -> None:
    """With the source whose prompts it should draw, or as the sampler of the sources."""
    steered = {**ONE, "data": {**ONE["data"], "sampler": "easy_to_hard"}}
    project(tmp_path / "one", steered, TWO).run("train", "run.toml").assert_refused(
        "source one: sampler = easy_to_hard (run.toml): the sampler easy_to_hard needs a number in the column difficulty",
        "name another column in [data.sampler_options], or type --sampler shuffled",
    )
    tester = project(tmp_path / "among", ONE, TWO, data={"sampler": "easy_to_hard"})
    said = "the sampler easy_to_hard orders prompts by a column, and data without end and sources have none; type --sampler success_rate"
    tester.run("train", "run.toml").assert_refused(f"the sampler of the sources: sampler = easy_to_hard (run.toml): {said}")
    tester.run("train", "run.toml", "--sampler", "easy_to_hard").assert_refused("the sampler of the sources: --sampler easy_to_hard: ")


def test_an_evaluation_scores_each_task_with_the_rewards_of_its_source(tmp_path: Path) -> None:
    first = {**ONE, "eval": {"eval_dataset": {"own": "held.jsonl"}}}
    tester = project(tmp_path, first, TWO)
    tester.run("train", "run.toml").assert_ok()
    done = tester.run("eval", str(folder_of(tester)), "--json").assert_ok()
    assert set(done.json["tasks"]) == {"own", "held"}


def test_bad_rows_are_left_out_of_the_source_that_says_so(tmp_path: Path) -> None:
    dropping = {**TWO, "data": {"dataset": "bad.jsonl", "bad_rows": "drop"}}
    tester = project(tmp_path, ONE, dropping)
    good = (tester.folder / "second.jsonl").read_text()
    tester.write("bad.jsonl", good + "not json\n")
    done = tester.run("train", "run.toml", "--json").assert_ok()
    assert list(done.json["bad_rows"]) == ["train/two"]
    tester = project(tmp_path / "refused", ONE, {**TWO, "data": {"dataset": "bad.jsonl"}})
    tester.write("bad.jsonl", good + "not json\n")
    tester.run("train", "run.toml").assert_refused("bad.jsonl:4")


def test_the_filter_of_a_source_removes_its_groups_alone(tmp_path: Path) -> None:
    tester = project(tmp_path, {**ONE, "algorithm": {"filter_range": [0.0, 1.0]}}, TWO, algorithm={"filter_limit": "none"})
    done = tester.run("train", "run.toml", "--json").assert_ok()
    updates = [row for row in figures_of(tester) if "loss" in row]
    assert sum(row["source/one/filtered"] for row in updates) == done.json["ledger"]["filtered"] > 0
    assert {row["source/two/filtered"] for row in updates} == {0.0}
    told = done.json["filter"]
    assert round((told["too_hard"] + told["too_easy"]) * told["groups"]) == told["filtered"]


@pytest.mark.parametrize("ahead", [0, 1])
def test_the_sources_train_in_processes(tmp_path: Path, ahead: int) -> None:
    sections = {"schedule": {"max_staleness": ahead}, "inference": {"num_inferencer": 2}}
    tester = project(tmp_path, ONE, TWO, **sections)
    tester.in_process = False
    done = tester.run("train", "run.toml", "--json", "--runtime", "local").assert_ok()
    assert done.json["ledger"]["trained"] == 9
    assert Counter(row["source"] for row in rollouts_of(tester)) == {"one": 6 * 8, "two": 3 * 4}
    if ahead == 0:  # the same numbers as in one process
        alone = project(tmp_path / "alone", ONE, TWO)
        alone.run("train", "run.toml").assert_ok()
        assert [row["reward/mean"] for row in figures_of(alone) if "loss" in row] == [
            row["reward/mean"] for row in figures_of(tester) if "loss" in row
        ]
        for name, values in weights_of(alone).items():
            assert np.array_equal(values, weights_of(tester)[name]), name


def test_one_source_answers_prompts_and_two_play_episodes_of_an_environment(tmp_path: Path) -> None:
    """Each of the two has its own agent, gateway and workers."""
    playing = {"rewards": [{"name": "environment"}], "sampling": {"num_generations": 4, "environment": "fake"}}
    three = {**ONE, "name": "three", "weight": 1.0, **playing}
    tester = project(tmp_path, {**ONE, "weight": 1.0}, {"name": "two", "data": TWO["data"], **playing}, three)
    tester.run("train", "run.toml").assert_ok()
    rows = rollouts_of(tester)
    assert Counter(row["source"] for row in rows) == {"one": 3 * 8, "two": 3 * 4, "three": 3 * 4}
    assert {(row["source"], *sorted(row["parts"])[:1]) for row in rows} == {
        ("one", "fake"),
        ("two", "environment"),
        ("three", "environment"),
    }
    assert {"calls" in row.get("extra", {}) for row in rows if row["source"] != "one"} == {True}
    assert {"calls" in row.get("extra", {}) for row in rows if row["source"] == "one"} == {False}


def test_the_run_names_the_sampler_of_its_sources(tmp_path: Path) -> None:
    tester = project(tmp_path, ONE, TWO, data={"sampler": "sequential"})
    tester.run("train", "run.toml", "--train-batch-size", "2").assert_ok()
    assert {row["source/one/share"] for row in figures_of(tester) if "loss" in row} == {0.5}
    manifest = json.loads((folder_of(tester) / "manifest.json").read_text())
    assert manifest["origins"]["data.sampler"] == "run.toml"


def test_options_of_the_sampler_of_sources_may_be_flags(tmp_path: Path) -> None:
    tester = project(tmp_path, ONE, TWO, run={"num_episodes": 2, "max_steps": 2})
    words = ("--sampler", "success_rate", "--explore")
    tester.run("train", "run.toml", *words, "x").assert_refused("--explore x: data.sampler_options.explore (sampler success_rate of")
    tester.run("train", "run.toml", *words, "0.5").assert_ok()
    assert tomllib.loads((folder_of(tester) / "run.toml").read_text())["data"]["sampler_options"]["explore"] == 0.5
    tester.run("resume", str(folder_of(tester)), "--max-steps", "4", "--explore", "0.25").assert_ok()
    assert tomllib.loads((folder_of(tester) / "run.toml").read_text())["data"]["sampler_options"]["explore"] == 0.25


def test_a_controller_that_changes_a_setting_of_sources_is_refused(tmp_path: Path) -> None:
    tester = project(tmp_path, ONE, {**TWO, "algorithm": {"kl_coeff": 0.1}}, run={"controllers": ["adaptive_kl"]})
    tester.run("train", "run.toml").assert_refused("adaptive_kl", "changes algorithm.kl_coeff, and each of [[sources]] has its own")


def test_an_endless_source_trains_beside_one_that_ends(tmp_path: Path) -> None:
    endless = {**TWO, "data": {"dataset": "fake-endless:abcd"}}
    tester = project(tmp_path, ONE, endless, run={"max_steps": 5})
    tester.run("train", "run.toml").assert_ok()
    rows = rollouts_of(tester)
    assert Counter(row["source"] for row in rows) == {"one": 10 * 8, "two": 5 * 4}
    assert {row["prompt_index"] for row in rows if row["source"] == "two"} == set(range(5))
    assert all(row["prompt"] for row in rows)
    tester = project(tmp_path / "without", ONE, endless)
    config = tomllib.loads((tester.folder / "run.toml").read_text())
    del config["run"]["max_steps"]
    tester.write_toml("run.toml", config)
    tester.run("train", "run.toml").assert_refused("source two: fake-endless:abcd has no end", "type --max-steps 200")


BROKEN = """
from rlcore.api import Reward

class Broken(Reward):
    def score(self, item):
        raise ValueError("broken")
"""


@pytest.mark.parametrize("runtime", ["in_process", "local", "ray"])
def test_failures_say_the_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, runtime: str) -> None:
    broken = {"name": "two", "data": TWO["data"], "rewards": [{"name": "./broken.py:Broken"}]}
    tester = project(tmp_path, ONE, broken, run={"num_episodes": 1, "max_steps": 2}, schedule={"reward_error_budget": 1.0})
    tester.write("broken.py", BROKEN)
    more = ["-i", "2"] if runtime == "local" else []
    with ray_in_one_process(monkeypatch):
        done = tester.run("train", "run.toml", "--json", "--runtime", runtime, *more).assert_ok()
    failures = rows_of(folder_of(tester) / "failures.jsonl")
    assert {row["source"] for row in failures} == {"two"}
    assert done.json["sources"]["two"]["failed"] == len(failures) == done.json["ledger"]["failed"] > 0
    assert {row["source"] for row in rollouts_of(tester)} == {"one"}
    updates = [row for row in figures_of(tester) if "loss" in row]
    assert 0 < sum(row["source/two/failed"] for row in updates) <= len(failures)
