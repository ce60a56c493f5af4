"""Runs with filters of groups: the file of docs/authors/algorithms.md, a stranger's, wrong ones, and what the plan refuses."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlcore.api import GroupFilter
from rlcore.testing import GroupFilterSuite, PluginFolder, RunOutcome, RunTester
from tests.stranger_site import link_stranger, stranger_site

PAGE = Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md"
SOURCE = re.search(r"```python\n(?P<code>(?:(?!```).)*?class Best\(GroupFilter.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
assert SOURCE is not None
CODE = SOURCE["code"]
REWARDS = """
from rlcore.api import Reward, Score

def lengths(item) -> Score:
    "Nothing for the letter a, else a number that differs between answers."
    return Score(value=0.0 if item.columns["gt_answer"] == "a" else float(sum(map(ord, item.text))))
"""
WRONG = """
from rlcore.api import GroupFilter

class TooFew(GroupFilter):
    def keep(self, group):
        return [True]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return stranger_site(tmp_path_factory)


@pytest.fixture
def tester(tmp_path: Path, site: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    link_stranger(site, made.plugins)
    for name, text in {"best.py": CODE, "rewards.py": REWARDS, "wrong.py": WRONG}.items():
        made.write(name, text)
    return made


class TestShortest(GroupFilterSuite):
    @pytest.fixture(autouse=True)
    def _installed(self, tmp_path: Path, site: Path) -> Iterator[None]:
        with PluginFolder(tmp_path / "plugins") as plugins:
            link_stranger(site, plugins)
            registry = plugins.discover()
            options = registry.options_model("filter", "acme_shortest")
            assert options is not None
            self._make = lambda: registry.make("filter", "acme_shortest", options=options(short=2))
            yield

    def make(self) -> GroupFilter:
        made: GroupFilter = self._make()
        return made


def a_run(tester: RunTester, letters: str = "abcdef", **sections: Any) -> str:
    config = tester.fake_run(
        run={"num_episodes": 50, "max_steps": 4, **sections.pop("run", {})},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        log={"save_interval": 1, "keep_checkpoints": 20},
        **sections,
    )
    tester.fake_data(letters=letters)
    return config


def folder_of(tester: RunTester, done: RunOutcome) -> Path:
    return tester.folder / done.json["run"]


def steps(folder: Path) -> list[dict[str, float]]:
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    return [row for row in rows if "loss" in row]


def test_the_filter_of_the_page_passes_the_kit_and_trains(tester: RunTester) -> None:
    module = ModuleType("best")
    exec(compile(CODE, "best.py", "exec", dont_inherit=True), vars(module))
    module.test_best()
    done = tester.run("train", a_run(tester), "-rt", "./rewards.py:lengths", "--filters", "./best.py:Best", "--best", "3", "--json")
    folder = folder_of(tester, done.assert_ok())
    groups = [row["groups"] for row in steps(folder)]
    assert [row["rollouts_in_loss"] for row in steps(folder)] == [3 * number for number in groups]
    assert [row["filter/best/rollouts"] for row in steps(folder)] == groups
    assert [row["filter/best/groups"] for row in steps(folder)] == [0.0] * 4
    written = tomllib.loads((folder / "run.toml").read_text())["algorithm"]
    assert written["filter_options"] == {"best": {"best": 3}}
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["filter"]["best/rollouts"] == sum(groups)
    assert {row["kind"] for row in json.loads((folder / "manifest.json").read_text())["plugins"]} >= {"filter"}
    assert tester.run("train", str(folder / "run.toml"), "--dry-run").assert_ok()


def test_producers_in_processes_of_their_own_filter_as_well(tester: RunTester) -> None:
    config = a_run(tester, run={"runtime": "local"}, schedule={"max_staleness": 1})
    done = tester.run("train", config, "-rt", "./rewards.py:lengths", "--filters", "./best.py:Best", "--best", "1", "--json").assert_ok()
    rows = steps(folder_of(tester, done))
    assert [row["rollouts_in_loss"] for row in rows] == [row["groups"] for row in rows]
    assert all(row["filter/best/rollouts"] >= 3 * row["groups"] for row in rows)


RECIPE = """
from rlcore.api import AlgorithmSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_algorithms():
    chosen = {"algorithm.filters": (("best_of_n",), "table 1"), "algorithm.filter_options.best_of_n.best": (2, "table 2")}
    return [
        AlgorithmSpec(name="picky", summary="", estimator="fake", loss="fake", defaults=chosen),
        AlgorithmSpec(name="wrong", summary="", estimator="fake", loss="fake", defaults={"algorithm.filters": (("best_of_m",), "")}),
    ]
"""


def test_a_recipe_may_choose_filters_with_options(tester: RunTester) -> None:
    tester.plugins.install("recipes", RECIPE)
    config = a_run(tester)
    planned = tester.run("train", config, "-a", "picky", "--dry-run", "--json").assert_ok().json["config"]["algorithm"]
    assert (planned["filters"], planned["filter_options"]["best_of_n"]["best"]) == (["best_of_n"], 2)
    told = tester.run("train", config, "-a", "picky", "--filters", "length_range", "--dry-run").assert_ok()
    assert "options of [algorithm.filter_options.best_of_n] that do not apply" in told.stdout
    tester.run("train", config, "-a", "wrong", "--dry-run").assert_refused(
        "sets algorithm.filters to 'best_of_m'", "did you mean 'best_of_n'"
    )


def test_removed_rollouts_stay_in_the_statistics(tester: RunTester) -> None:
    """With three of four kept, rewards and their deviation are those of a run without a filter, for the first update."""
    words = ["train", a_run(tester), "-rt", "./rewards.py:lengths", "--json"]
    first = [steps(folder_of(tester, tester.run(*words, *more).assert_ok()))[0] for more in ([], ["--filters", "./best.py:Best"])]
    for name in ("reward/mean", "reward/std", "reward/group_std", "response_tokens"):
        assert first[0][name] == first[1][name]
    assert first[0]["rollouts_in_loss"] == 2 * first[1]["rollouts_in_loss"]
    assert first[0]["loss"] != first[1]["loss"]


def test_groups_of_equal_rewards_are_replaced_or_masked_and_a_resumed_run_goes_on(tester: RunTester) -> None:
    words = ["-rt", "./rewards.py:lengths", "--filters", "reward_spread"]
    config = a_run(tester, letters="aab")
    masked = tester.run("train", config, *words, "--json").assert_ok()
    assert sum(row["groups/masked"] for row in steps(folder_of(tester, masked))) == masked.json["ledger"]["filtered"] > 0
    replaced = [*words, "--dynamic-batching", "--filter-limit", "none", "--json"]
    straight = tester.run("train", config, *replaced).assert_ok()
    rows = steps(folder_of(tester, straight))
    assert [row["groups/masked"] for row in rows] == [0.0] * 4
    assert [row["filter/reward_spread/groups"] for row in rows] == [row["groups/filtered"] for row in rows]
    assert sum(row["groups/filtered"] for row in rows) == straight.json["ledger"]["filtered"] > 0
    broken = folder_of(tester, tester.run("train", config, *replaced, "--max-steps", "2").assert_ok())
    resumed = tester.run("resume", str(broken), "--max-steps", "4", "--json").assert_ok()
    assert resumed.json["ledger"] == straight.json["ledger"]
    assert [row["loss"] for row in steps(broken)] == [row["loss"] for row in rows]


def test_filters_that_leave_nothing_end_the_run(tester: RunTester) -> None:
    config = a_run(tester, letters="a", run={"max_steps": 10**6, "num_episodes": 10**6})
    flags = ["--filters", "reward_spread", "--dynamic-batching", "--filter-limit", "2"]
    done = tester.run("train", config, "-rt", "./rewards.py:lengths", *flags)
    assert done.exit_code == 1
    assert "removed by the filters reward_spread (" in done.stderr
    assert "other options of the filter reward_spread" in done.stderr


@pytest.mark.parametrize("runtime", ["in_process", "local"])
def test_a_wrong_filter_ends_the_run_with_its_name(tester: RunTester, runtime: str) -> None:
    config = a_run(tester, run={"runtime": runtime})
    done = tester.run("train", config, "--filters", "./wrong.py:TooFew", *(["--max-staleness", "1"] if runtime == "local" else []))
    assert done.exit_code == 1
    told = " ".join((done.stdout + done.stderr).split())
    assert re.search(r"group filter '\./wrong.py:TooFew' of \S*wrong.py returned 1 values from keep", told), told
    assert "takes its place" not in told


def test_the_plan_refuses_what_cannot_work(tester: RunTester) -> None:
    config = a_run(tester)
    refused = {
        ("--filters", "best_of_m"): ("there is no group filter 'best_of_m', did you mean 'best_of_n'",),
        ("--filters", "best_of_n", "--best", "0"): ("best = 0 and worst = 0 keep no rollout; type --best 1",),
        ("--filters", "length_range", "--min-tokens", "-1"): ("--min-tokens -1", "at least 0"),
        ("--filters", "length_range", "length_range"): ("the group filters length_range and length_range would both have their options",),
    }
    for words, said in refused.items():
        tester.run("train", config, *words, "--dry-run").assert_refused(*said)
    wrong = tester.fake_run(algorithm={"filters": ["length_range"], "filter_options": {"length_rang": {"min_tokens": 2}}})
    tester.run("train", wrong, "--dry-run").assert_refused(
        "[algorithm.filter_options.length_rang] is for a group filter that the run does not have, did you mean 'length_range'"
    )
    told = tester.run("train", config, "--filters", "length_range", "--dry-run").assert_ok()
    assert "filtered groups are masked; --dynamic-batching replaces them" in told.stdout
    tester.run("train", config, "--filters", "length_range", "--dynamic-batching", "--dry-run").assert_ok()


def test_they_are_listed_shown_and_flags_of_two_filters_are_told_apart(tester: RunTester) -> None:
    listed = tester.run("plugins").assert_ok().stdout
    assert all(name in listed for name in ("reward_spread", "best_of_n", "length_range", "acme_shortest"))
    shown = json.loads(tester.run("show", "filter", "best_of_n", "--json").assert_ok().stdout)
    assert tomllib.loads(shown["toml"])["algorithm"] == {"filters": ["best_of_n"], "filter_options": {"best_of_n": {"best": 1, "worst": 0}}}
    words = ["--filters", "acme_shortest", "best_of_n", "--filters.best_of_n.best", "2", "--short", "3", "--dry-run", "--json"]
    planned = tester.run("train", a_run(tester), *words).assert_ok().json["config"]["algorithm"]
    assert planned["filters"] == ["acme_shortest", "best_of_n"]
    assert planned["filter_options"] == {"acme_shortest": {"short": 3}, "best_of_n": {"best": 2, "worst": 0}}
