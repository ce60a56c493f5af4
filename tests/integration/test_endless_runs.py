"""Runs on endless data: in one process and in several, the rollout log, levels that a sampler raises, and a resumed run."""

from __future__ import annotations

import gzip
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester

CLIMB = """
from rlcore.api import Draw, Sampler, SamplerSpec, hookimpl

rlcore_api = "2.0"


class Climb(Sampler):
    '''Makes the next rows harder once a group is right in most of its answers.'''

    def __init__(self, context):
        self._levels, self._next, self._level = context.levels, 0, 0

    def next(self):
        self._next += 1
        return Draw(self._next - 1, self._level)

    def observe(self, result):
        if result.level == self._level and (result.accuracy or 0.0) >= 0.75:
            self._level = min(self._level + 1, self._levels - 1)

    def state(self):
        return {"next": self._next, "level": self._level}

    def restore(self, state):
        self._next, self._level = state["next"], state["level"]


@hookimpl
def rlcore_register_samplers():
    return [SamplerSpec(name="climb", target="rlcore_plugin_climbing:Climb", summary="Raises the level with success")]
"""


TURNS = """
from rlcore.api import DataSourceSpec, hookimpl
from rlcore.api.data import BadRow, RowGenerator

rlcore_api = "2.0"


class Turns(RowGenerator):
    '''Its rows from number 9 on are bad, or too long: turns:bad, turns:long.'''

    def row(self, path, number, level):
        if number >= 9 and path == "turns:raises":
            return self.wells[number]
        if number >= 9 and path == "turns:bad":
            return BadRow("the well is dry")
        words = "abc"[number % 3] * (1 if number < 9 else 40)
        return {"messages": {"role": "user", "content": words}, "gt_answer": "a"}


@hookimpl
def rlcore_register_data_sources():
    return [DataSourceSpec(name="turns", target="rlcore_plugin_turning:Turns", summary="Turns bad", prefix="turns:", endless=True)]
"""


def a_tester(folder: Path) -> RunTester:
    tester = RunTester(folder, in_process=True).with_fakes()
    tester.plugins.install("climbing", CLIMB)
    tester.plugins.install("turning", TURNS)
    return tester


def trained(tester: RunTester, *words: str, **sections: Any) -> Path:
    data = {"dataset": "fake-endless:abcdef", **sections.pop("data", {})}
    run = {"max_steps": 4, **sections.pop("run", {})}
    outcome = tester.run("train", tester.fake_run(data=data, run=run, **sections), "--json", *words).assert_ok()
    return tester.folder / str(outcome.json["run"])


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def rollouts(run: Path) -> list[dict[str, Any]]:
    paths = sorted(run.glob("rollouts/step-*"), key=lambda path: int(path.name.split("-")[1].split(".")[0]))
    return [json.loads(line) for path in paths for line in gzip.decompress(path.read_bytes()).splitlines()]


def test_a_run_goes_through_the_numbers_and_ends_at_max_steps(tmp_path: Path) -> None:
    run = trained(a_tester(tmp_path))
    rows = rollouts(run)
    assert [row["prompt_index"] for row in rows[::8]] == list(range(12))
    assert {row["episode"] for row in rows} == {0}
    assert rows[8]["prompt_id"] == "fake-endless:abcdef:2"
    assert [message["content"] for message in rows[8]["prompt"]][-1] == "b"
    assert rows[8]["gold"] == "b"
    assert [row["level/mean"] for row in lines(run / "metrics.jsonl")] == [0.0] * 4
    assert {row["level"] for row in rows} == {0}


def test_an_evaluation_needs_an_end(tmp_path: Path) -> None:
    tester = a_tester(tmp_path)
    run = str(trained(tester))
    tester.run("eval", run, "-d", "fake-endless:abcd").assert_refused("name a data set that ends, or type --max-rows 100")
    (task,) = tester.run("eval", run, "-d", "fake-endless:abcd", "--max-rows", "6", "--json").assert_ok().json["tasks"].values()
    assert task["completions"] == 6


def test_a_run_of_bounded_rows_has_no_level(tmp_path: Path) -> None:
    run = trained(a_tester(tmp_path), data={"max_rows": 6})
    assert all("level/mean" not in row for row in lines(run / "metrics.jsonl"))
    assert all("level" not in row for row in rollouts(run))


LEARNS = {"run": {"max_steps": 30}, "training": {"learning_rate": 1.0}, "data": {"sampler": "climb"}}


def test_a_sampler_raises_the_level_with_success(tmp_path: Path) -> None:
    run = trained(a_tester(tmp_path), **LEARNS)
    levels = [row["level/mean"] for row in lines(run / "metrics.jsonl")]
    print("level by step", levels, "accuracy", [round(row["reward/accuracy"], 2) for row in lines(run / "metrics.jsonl")])
    assert levels == sorted(levels)
    assert (levels[0], levels[-1]) == (0.0, 1.0)
    assert {(row["level"], row["gold"]) for row in rollouts(run)} == {(0, "a"), (0, "b"), (0, "c"), (1, "d"), (1, "e"), (1, "f")}
    first = next(row for row in rollouts(run) if row["level"])
    assert first["prompt_id"] == f"fake-endless:abcdef:{first['prompt_index'] + 1}@1"


@pytest.mark.parametrize("staleness", [0, 2])
def test_a_resumed_run_goes_on_at_its_position(staleness: int, tmp_path: Path) -> None:
    tester = a_tester(tmp_path)
    sections = {**LEARNS, "log": {"save_interval": 7}, "schedule": {"max_staleness": staleness}, "run": {"max_steps": 16}}
    straight = trained(tester, "-p", "straight", "--runtime", "local", **sections)
    kept = [row for row in rollouts(straight) if row["step"] <= 7]
    tester.run("resume", str(straight), "--step", "7").assert_ok()
    after = rollouts(straight)
    assert [row for row in after if row["step"] <= 7] == kept
    issued = {row["prompt_index"] for row in after}
    assert len({(row["prompt_index"], row["episode"]) for row in after}) == len(issued) == 48
    if staleness == 0:
        assert issued == set(range(48))


def test_a_resumed_run_has_the_bits_of_one_that_was_not_stopped(tmp_path: Path) -> None:
    tester = a_tester(tmp_path)
    sections = {**LEARNS, "log": {"save_interval": 4, "keep_checkpoints": 9}}
    run = trained(tester, **sections)
    figures = [{name: row[name] for name in ("level/mean", "reward/mean", "loss")} for row in lines(run / "metrics.jsonl")]
    weights = (run / "checkpoints/step-30/model/fake_policy.npz").read_bytes()
    tester.run("resume", str(run), "--step", "4").assert_ok()
    assert [{name: row[name] for name in ("level/mean", "reward/mean", "loss")} for row in lines(run / "metrics.jsonl")] == figures
    assert (run / "checkpoints/step-30/model/fake_policy.npz").read_bytes() == weights


def test_processes_make_the_prompts_of_one_process(tmp_path: Path) -> None:
    """Two producers and two trainer ranks at staleness 0 sample and train what one process does."""
    tester = a_tester(tmp_path)
    one, several = (
        trained(tester, "-p", "one", **LEARNS),
        trained(tester, "-p", "several", "-i", "2", "-t", "2", "--runtime", "local", **LEARNS),
    )
    told = ("step", "prompt_id", "index", "level", "text", "prompt", "gold")
    assert [[row[name] for name in told] for row in rollouts(one)] == [[row[name] for name in told] for row in rollouts(several)]


@pytest.mark.parametrize("staleness", ["0", "1"])
@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("turns:bad", "turns:bad:10: the well is dry"),
        ("turns:long", "turns:long:10: the prompt is 42 tokens long, 20 are allowed; raise -mpt/--max-prompt-tokens"),
    ],
)
def test_a_bad_row_ends_the_run_with_its_place(path: str, says: str, staleness: str, tmp_path: Path) -> None:
    tester = a_tester(tmp_path)
    config = tester.fake_run(data={"dataset": path, "max_prompt_tokens": 20}, run={"max_steps": 9})
    ended = tester.run("train", config, "--max-staleness", staleness, "--runtime", "local")
    assert ended.exit_code == 1, str(ended)
    assert f"{says}; nothing was saved yet\n" in ended.stderr
    assert "Traceback" not in ended.stderr


@pytest.mark.parametrize("runtime", ["in_process", "local"])
def test_an_error_of_a_generator_ends_the_run_with_its_traceback_and_the_last_checkpoint(runtime: str, tmp_path: Path) -> None:
    tester = a_tester(tmp_path)
    config = tester.fake_run(data={"dataset": "turns:raises"}, run={"max_steps": 9}, log={"save_interval": 1})
    ended = tester.run("train", config, "--max-staleness", "0", "--runtime", runtime)
    assert ended.exit_code == 1, str(ended)
    *above, last = ended.stderr.splitlines()
    assert "turns:raises:10: the data source turns of rlcore-plugin-turning failed in row('turns:raises', 9, 0) (AttributeError: " in last
    assert re.search(r"; the last checkpoint is .*step-\d+$", last)
    assert any("return self.wells[number]" in line for line in above)


def test_one_of_two_sources_may_be_endless(tmp_path: Path) -> None:
    tester = a_tester(tmp_path)
    sources = [
        {"name": "far", "weight": 2.0, "data": {"dataset": "fake-endless:abcdef", "sampler": "climb"}},
        {"name": "near", "data": {"dataset": str(tester.fake_data(letters="ab"))}},
    ]
    config = Path(tester.fake_run(run={"max_steps": 12}, training={"learning_rate": 1.0}))
    settings = {key: value for key, value in tomllib.loads(config.read_text(encoding="utf-8")).items() if key not in ("data", "rewards")}
    rewards = [{"name": "fake"}]
    tester.write_toml("run.toml", {**settings, "sources": [{**source, "rewards": rewards} for source in sources]})
    outcome = tester.run("train", str(config), "--json").assert_ok()
    run = tester.folder / str(outcome.json["run"])
    rows = rollouts(run)
    far = [row for row in rows[::8] if row["source"] == "far"]
    assert [row["prompt_index"] for row in far] == list(range(24))
    assert all(("level" in row) is (row["source"] == "far") for row in rows)
    figures = lines(run / "metrics.jsonl")
    assert all("source/far/level" in row and "source/near/level" not in row for row in figures)
    assert [row["level/mean"] for row in figures] == [row["source/far/level"] for row in figures]
    config.write_text(config.read_text(encoding="utf-8").replace("max_steps = 12\n", ""), encoding="utf-8")
    tester.run("train", str(config), "--dry-run").assert_refused("fake-endless:abcdef has no end, so the run would have none")
