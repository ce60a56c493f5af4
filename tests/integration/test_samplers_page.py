"""The sampler of docs/authors/samplers.md, as a reader copies it: in a run, under the kit, and from a package."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path
from typing import Any

import pytest

from rlcore.testing import RunTester
from tests.kit_in_folder import kit_passes

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "samplers.md").read_text(encoding="utf-8")
SAMPLER, SUITE, ENTRY, ENDLESS = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
STEPS, BATCH, GROUP = 6, 3, 8
LETTERS = "abcdefg"


@pytest.fixture
def tester(tmp_path: Path) -> RunTester:
    return RunTester(tmp_path, in_process=True).with_fakes()


def groups_of(tester: RunTester, *words: str) -> list[tuple[int, float]]:
    """The prompt and the mean accuracy of each group of a run, in order."""
    config = tester.fake_run(run={"num_episodes": 9, "max_steps": STEPS}, data={"dataset": str(tester.fake_data("letters.jsonl", LETTERS))})
    done = tester.run("train", config, "--sampler", *words, "--json").assert_ok()
    folder, rows = tester.folder / done.json["run"] / "rollouts", list[dict[str, Any]]()
    for step in range(1, STEPS + 1):
        rows += map(json.loads, gzip.decompress((folder / f"step-{step}.jsonl.gz").read_bytes()).splitlines())
    groups = [rows[first : first + GROUP] for first in range(0, len(rows), GROUP)]
    assert len(groups) == STEPS * BATCH
    return [(group[0]["prompt_index"], sum(row["accuracy"] for row in group) / GROUP) for group in groups]


def due(groups: list[tuple[int, float]], below: float) -> list[int]:
    """The prompts that the page promises for these accuracies."""
    drawn, again, expected = 0, list[int](), list[int]()
    for first in range(0, len(groups), BATCH):
        for _ in range(BATCH):
            if again:
                expected.append(again.pop(0))
            else:
                expected.append(drawn % len(LETTERS))
                drawn += 1
        again += [prompt for prompt, accuracy in groups[first : first + BATCH] if accuracy < below]
    return expected


def test_a_run_draws_what_was_wrong_again(tester: RunTester) -> None:
    tester.write("wrong_again.py", SAMPLER)
    groups = groups_of(tester, "./wrong_again.py:WrongAgain", "--below", "0.1")
    assert [prompt for prompt, _ in groups] == due(groups, 0.1)
    assert 0 < sum(accuracy < 0.1 for _, accuracy in groups) < len(groups)


def test_the_kit_passes(tester: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    assert kit_passes(tester, monkeypatch, "wrong_again", SAMPLER, SUITE)


def test_each_tenth_row_of_data_without_end_is_hard(tester: RunTester) -> None:
    tester.write("tenth.py", ENDLESS)
    endless = tester.fake_run(run={"max_steps": 5}, data={"dataset": "fake-endless:abcd"})
    done = tester.run("train", endless, "--sampler", "./tenth.py:TenthHard", "--json").assert_ok()
    folder, levels = tester.folder / done.json["run"] / "rollouts", dict[int, int]()
    for path in folder.glob("step-*"):
        rows = map(json.loads, gzip.decompress(path.read_bytes()).splitlines())
        levels.update((row["prompt_index"], row["level"]) for row in rows)
    assert levels == {number: int(number == 9) for number in range(5 * BATCH)}
    said = "the sampler TenthHard needs data without end; type --sampler sequential"
    tester.run("train", tester.fake_run(), "--sampler", "./tenth.py:TenthHard").assert_refused(said)


def test_a_package_offers_it(tester: RunTester) -> None:
    entry = ENTRY.replace("my_plugin.", "rlcore_plugin_mine.")
    tester.plugins.install("mine", f'rlcore_api = "2.0"\n{entry}', files={"wrong_again.py": SAMPLER})
    groups = groups_of(tester, "wrong_again", "--below", "0.1")
    assert [prompt for prompt, _ in groups] == due(groups, 0.1)
