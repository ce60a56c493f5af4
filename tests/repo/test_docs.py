"""The README is run: its blocks are written to files and used as the text says; the tables and words of first pages are checked."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest

from rlcore.api import Loss
from rlcore.api.commands import install_line
from rlcore.testing import LossSuite, RunTester
from tests.commands import command_lines
from tests.page_walk import BLOCK, PageWalk

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "README.md"
README = PAGE.read_text(encoding="utf-8")
INSTALL = (ROOT / "docs" / "how_to" / "install.md").read_text(encoding="utf-8")
FIRST_RUN = (ROOT / "docs" / "tutorials" / "first_run.md").read_text(encoding="utf-8")
NOT_TYPED = (
    "make quickstart",
    "make test",
    "make wheels",
    "pip install --constraint dist/constraints.txt dist/*.whl 'rlcore[quickstart]'",
)
"""Lines that other tests type: tests/repo/test_make.py and test_wheels.py."""


def blocks(text: str) -> dict[str, str]:
    return {match["name"]: match["text"] for match in BLOCK.finditer(text) if match["name"]}


def test_the_first_page_is_short() -> None:
    assert len(README.splitlines()) <= 120


def test_the_table_of_extras_is_whole() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    everything = set(re.split(r"[\[\],]", extras["all"][0])[1:-1])
    rows = INSTALL.partition("| extra | brings |")[2].partition("\n\n")[0]
    assert everything - set(re.findall(r"`(\w+)`", rows)) == set()


def test_the_first_page_is_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The Python of the page needs the folder of its quickstart."""
    walk = PageWalk(tmp_path, tmp_path_factory, dict.fromkeys(NOT_TYPED, ""))
    walk.quickstart("demo")
    typed = walk.read(PAGE)
    assert "held-out" in typed["rlcore quickstart demo"]
    newest = max((tmp_path / "demo" / "runs").rglob("metrics.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    assert '"loss/held"' in newest.read_text(encoding="utf-8")
    assert list(tmp_path.rglob("report.html"))


class TestTheLossOfTheReadme(LossSuite):
    def make(self) -> Loss:
        names: dict[str, type[Loss]] = {}
        exec(blocks(README)["my_loss.py"], names)
        return names["MyLoss"]()


def commands_of(text: str) -> list[list[str]]:
    lines = (line for block in BLOCK.finditer(text) if block["language"] == "sh" for line in block["text"].splitlines())
    return [line.split("#")[0].split() for line in lines if line.startswith("rlcore ")]


@pytest.mark.parametrize("text", [README, FIRST_RUN], ids=["README", "first_run"])
def test_the_first_pages_name_commands_that_exist(text: str) -> None:
    assert {words[1] for words in commands_of(text)} <= set(command_lines())


def test_the_two_commands_and_every_make_target_of_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert "make quickstart" in README
    assert "make test" in README
    for text in (README, INSTALL, (ROOT / "CONTRIBUTING.md").read_text()):
        assert set(re.findall(r"make ([a-z]+(?:-[a-z]+)*)", text)) - {"it"} <= targets


def test_paths_that_the_docs_name_exist() -> None:
    for name in ("README.md", "CONTRIBUTING.md", "docs/explanation/architecture.md"):
        for path in re.findall(r"`((?:rlcore|tests|plugins|docs|benchmarks)/[\w./-]*)`", (ROOT / name).read_text()):
            assert (ROOT / path).exists(), f"{name} names {path}"


def test_a_stranger_is_told_what_is_not_installed(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_only("rlcore-plugin-math")
    tester.write_jsonl("train.jsonl", [{"messages": {"role": "user", "content": "x"}, "gt_answer": "1"}])
    done = tester.run("train", "-m", "org/model", "-d", "train.jsonl", "-rt", "boxed", "--trackers", "wandb", "--dry-run").assert_ok()
    assert install_line("rlcore-plugin-trackers") in "".join(done.stdout.split("\n"))
