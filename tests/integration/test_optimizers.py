"""Runs that step with a chosen optimizer: the example of docs/authors/algorithms.md as a file, as a plugin, resumed and under the kit."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import pytest

from rlcore.testing import OptimizerSuite, RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "algorithms.md").read_text(encoding="utf-8")
BLOCKS = [block for block in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL) if "MyMuon" in block]
CODE, ENTRY, SUITE = BLOCKS
MODULE = ModuleType("mine")
exec(compile(CODE, "mine.py", "exec"), vars(MODULE))


def suite_of_the_page() -> type[OptimizerSuite]:
    """The test of the page, as it stands there."""
    held, sys.modules["mine"] = sys.modules.get("mine"), MODULE
    try:
        space: dict[str, type[OptimizerSuite]] = {}
        exec(compile(SUITE, "test_mine.py", "exec"), space)
    finally:
        if held is None:
            del sys.modules["mine"]
        else:
            sys.modules["mine"] = held
    return space["TestMyMuon"]


TestMyMuon = suite_of_the_page()


def test_the_plugin_is_short() -> None:
    assert len([line for block in BLOCKS for line in block.splitlines() if line.strip()]) < 60


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    made = RunTester(tmp_path, in_process=True).with_fakes()
    made.write("mine.py", CODE)
    return made


def a_run(tester: RunTester, steps: int = 6, trainer: str = "fake-pipeline", schedule: str = "wsd") -> str:
    return tester.fake_run(
        run={"num_episodes": 50, "max_steps": steps},
        training={"name": trainer, "learning_rate": 0.4, "lr_schedule": schedule},
        sampling={"max_new_tokens": 4, "num_generations": 4},
        log={"save_interval": 1, "keep_checkpoints": 20},
    )


def trained(tester: RunTester, config: str, *words: str) -> Path:
    return tester.folder / tester.run("train", config, *words, "--json").assert_ok().json["run"]


def weights(run: Path) -> bytes:
    return (run / "checkpoints/step-6/model/fake_policy.npz").read_bytes()


def test_a_run_steps_with_a_class_of_a_file_and_resumes_exactly(tester: RunTester) -> None:
    chosen = ("--optimizer", "./mine.py:MyMuon")
    straight = trained(tester, a_run(tester, schedule="constant"), *chosen)
    broken = trained(tester, a_run(tester, 3, schedule="constant"), *chosen)
    tester.run("resume", str(broken), "--max-steps", "6").assert_ok()
    assert weights(broken) == weights(straight)
    assert weights(straight) != weights(trained(tester, a_run(tester, schedule="constant")))


def test_a_plugin_is_chosen_by_its_name_and_attested(tester: RunTester) -> None:
    tester.plugins.install("my_muon", ENTRY.replace("mine:", "rlcore_plugin_my_muon.mine:"), files={"mine.py": CODE})
    run = trained(tester, a_run(tester), "--optimizer", "my_muon")
    assert weights(run) == weights(trained(tester, a_run(tester), "--optimizer", "./mine.py:MyMuon"))
    assert tomllib.loads((run / "run.toml").read_text())["training"]["optimizer"] == "my_muon"
    attested = {(row["kind"], row["name"]) for row in json.loads((run / "manifest.json").read_text())["plugins"]}
    assert ("optimizer", "my_muon") in attested


def test_what_cannot_be_is_refused_by_the_plan(tester: RunTester) -> None:
    config = a_run(tester)
    tester.run("train", config, "--optimizer", "adamww", "--dry-run").assert_refused("there is no optimizer 'adamww', did you mean")
    tester.run("train", config, "--optimizer", "none", "--dry-run").assert_refused("there is no optimizer 'none'")
    other = tester.run("train", a_run(tester, trainer="fake"), "--optimizer", "./mine.py:MyMuon", "--dry-run")
    other.assert_refused(
        "--optimizer ./mine.py:MyMuon: training backend fake has only its own AdamW (capabilities.optimizers is False); "
        "type --optimizer adamw, or name another --trainer"
    )
    run = trained(tester, a_run(tester))
    again = tester.run("resume", str(run), "--max-steps", "7", "--optimizer", "./mine.py:MyMuon")
    again.assert_refused("a resumed run keeps its training.optimizer, which is adamw")


def test_the_usual_rates_of_adamw_are_not_those_of_another(tester: RunTester) -> None:
    plain = tester.run("train", a_run(tester), "--dry-run").assert_ok()
    chosen = tester.run("train", a_run(tester), "--optimizer", "./mine.py:MyMuon", "--dry-run").assert_ok()
    assert ["AdamW trains with 1e-6 to 1e-3" in done.stdout for done in (plain, chosen)] == [True, False]


def test_they_are_listed_and_shown(tester: RunTester) -> None:
    listed = tester.run("plugins").assert_ok().stdout
    assert "optimizer: " in listed
    shown = json.loads(tester.run("show", "optimizer", "adamw", "--json").assert_ok().stdout)
    assert tomllib.loads(shown["toml"])["training"] == {"optimizer": "adamw"}
