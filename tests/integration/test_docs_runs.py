"""docs/how_to/runs.md: its commands are run on runs of fakes, and the examples have the headings and words that the commands print."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from rlcore.testing import RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "how_to" / "runs.md").read_text(encoding="utf-8")
LINES = [
    line.split("#")[0].strip() for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE) for line in block.splitlines()
]
EXAMPLES = re.findall(r"^```text\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def tester(tmp_path_factory: pytest.TempPathFactory) -> RunTester:
    """Three runs in the project ``demo``, which are A, B and C as well, and RUN."""
    tester = RunTester(tmp_path_factory.mktemp("project"), in_process=True).with_fakes()
    tester.fake_data("held.jsonl")
    for name, rate in {"A": "0.1", "B": "0.2", "C": "0.3"}.items():
        config = tester.fake_run(eval={"eval_dataset": {"letters": "held.jsonl"}}, log={"rollout_interval": 1})
        run = tester.run("train", config, "-p", "demo", "-lr", rate, "--max-steps", "2", "--json").assert_ok().json["run"]
        (tester.folder / name).symlink_to(run)
    (tester.folder / "RUN").symlink_to(run)
    return tester


@pytest.mark.parametrize("line", LINES)
def test_every_command_is_accepted(tester: RunTester, line: str) -> None:
    words = shlex.split(line)
    assert words[0] == "rlcore"
    tester.run(*words[1:]).assert_ok()


def test_the_examples_are_what_the_commands_print(tester: RunTester) -> None:
    listed, compared, shown = EXAMPLES
    assert tester.run("runs").assert_ok().lines[0].split() == listed.splitlines()[0].split()
    said = tester.run("compare", "A", "B").assert_ok().stdout
    headings = [line.split() for line in compared.splitlines() if re.match(r"( +run|settings|evaluations|figures) ", line)]
    assert len(headings) == 4
    assert all(words in [line.split() for line in said.splitlines()] for words in headings)
    for words in (
        "the same in all: versions, plugins, data",
        "last 10 updates",
        "paired",
        "intervals",
        "seconds an update",
        "tokens a second",
    ):
        assert words in said
        assert words in compared
    labels = re.findall(r"^\w+", tester.run("rollouts", "RUN", "--limit", "1").assert_ok().stdout, re.MULTILINE)
    example = re.findall(r"^\w+", shown, re.MULTILINE)
    assert [label for label in example if label in labels] == labels  # a fake reward parses nothing
    assert len(labels) >= len(example) - 1
