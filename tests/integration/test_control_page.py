"""The controller of docs/authors/controllers.md, as a reader copies it: in a run, under the kit, and from a package."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from tests.kit_in_folder import kit_passes

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "controllers.md").read_text(encoding="utf-8")
CODE = {re.findall(r"class (\w+)|(TARGET) =", code)[0]: code for code in re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)}
TARGET, SUITE, ENTRY = (CODE[name] for name in (("Target", ""), ("TestTarget", ""), ("", "TARGET")))


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def a_run(tester: RunTester) -> str:
    held = {"eval_dataset": {"heldout": str(tester.fake_data("held.jsonl", "abcd"))}, "eval_interval": 1}
    return tester.fake_run(
        run={"num_episodes": 50, "max_steps": 12}, eval=held, training={"learning_rate": 2.0}, sampling={"num_generations": 16}
    )


def test_a_run_stops_at_the_target(tester: RunTester) -> None:
    tester.write("target.py", TARGET)
    done = tester.run("train", a_run(tester), "--controllers", "./target.py:Target", "--target", "0.2", "--json").assert_ok()
    rows = [json.loads(line) for line in (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()]
    accuracies = [row["eval/heldout"] for row in rows if "eval/heldout" in row]
    assert done.json["steps"] < 12
    assert done.json["stopped"] == f"target: the accuracy is {accuracies[-2]:.3f}"  # of the step before the last one
    told = [row["control/sampling.temperature"] for row in rows if "loss" in row]
    assert told == pytest.approx([1.0 - 0.4 * min(accuracy / 0.2, 1.0) for accuracy in accuracies[:-1]])


def test_the_kit_passes(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kit_passes(tester, monkeypatch, "target", TARGET, SUITE)


def test_a_package_offers_it(tester: RunTester) -> None:
    packaged = TARGET.replace("class Target(Controller):", "class Target(Controller, spec=TARGET):")
    packaged = packaged.replace('    sets = ("sampling.temperature",)\n\n', "")
    packaged = packaged.replace("\n\n\nclass", "\nfrom rlcore_plugin_mine import TARGET\n\n\nclass", 1)
    entry = ENTRY.replace("my_plugin.", "rlcore_plugin_mine.")
    tester.plugins.install("mine", f'rlcore_api = "2.0"\n{entry}', files={"target.py": packaged})
    done = tester.run("train", a_run(tester), "--controllers", "target", "--target", "0.2", "--json").assert_ok()
    assert done.json["stopped"].startswith("target: the accuracy is")
