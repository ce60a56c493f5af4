"""The documentation is run: every marked block of the README is written to a file and used as the text says."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from unittest import mock

import pytest

from rlcore.api import Loss
from rlcore.api.commands import install_line
from rlcore.testing import LossSuite, RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.commands import command_lines
from tests.quickstart_folder import quickstart_in

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"<!-- test: (?P<name>\S+) -->\n```\w+\n(?P<text>.*?)```", re.DOTALL)
BLOCKS = {match["name"]: match["text"] for match in BLOCK.finditer(README)}


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the README's files in it and a quickstart named demo."""
    folder = tmp_path_factory.mktemp("readme")
    for name, text in BLOCKS.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")
    here = Path.cwd()
    os.chdir(folder)
    try:
        quickstart_in(Path("demo"), tmp_path_factory)
    finally:
        os.chdir(here)
    return folder


def test_the_table_of_extras_is_whole() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    everything = set(re.split(r"[\[\],]", extras["all"][0])[1:-1])
    rows = README.partition("| extra | brings |")[2].partition("\n\n")[0]
    assert everything - set(re.findall(r"`(\w+)`", rows)) == set()


def run(folder: Path, *words: str) -> str:
    """What ``rlcore words`` prints in this process, which has torch loaded."""
    return RunTester(folder, in_process=True).run(*words).assert_ok().stdout


def run_script(folder: Path, text: str) -> str:
    """What a script in the folder prints. It trains in this process: two more would load torch for a few steps."""
    assert "max_steps=" in text
    out, path = io.StringIO(), mock.patch.object(sys, "path", [str(folder), *sys.path])
    with path, mock.patch.dict(os.environ), contextlib.chdir(folder), contextlib.redirect_stdout(out):
        exec(text.replace("max_steps=", "max_staleness=0, max_steps="), {"__name__": "__main__"})
    for name, module in list(sys.modules.items()):  # those of the script alone: torch cannot be imported twice
        if str(getattr(module, "__file__", "")).startswith(str(folder)):
            del sys.modules[name]
    return out.getvalue()


def run_alone(folder: Path, *words: str, code: str = PROGRAM, path: str = "") -> str:
    """The same in a process of its own, which finds what is in ``path`` from its start."""
    environment = os.environ | QUIET | {"PYTHONPATH": path, "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def metrics(folder: Path) -> str:
    newest = max((folder / "demo" / "runs").rglob("metrics.jsonl"), key=lambda path: path.stat().st_mtime_ns)
    return newest.read_text(encoding="utf-8")


def test_the_loss_is_at_most_fifteen_lines_and_its_metric_appears(demo: Path) -> None:
    assert len(BLOCKS["my_loss.py"].splitlines()) <= 15
    run(demo, "quickstart", "demo", "--loss", "./my_loss.py:MyLoss", "--max-steps", "2", "-ei", "0", "--max-staleness", "0")
    assert '"loss/held"' in metrics(demo)


class TestTheLossOfTheReadme(LossSuite):
    def make(self) -> Loss:
        names: dict[str, type[Loss]] = {}
        exec(BLOCKS["my_loss.py"], names)
        return names["MyLoss"]()


def test_the_samples_are_scored(demo: Path) -> None:
    scored = json.loads(run(demo, "score", "samples.jsonl", "--reward", "boxed", "--strict", "--json"))
    assert {name: figures["count"] for name, figures in scored["outcomes"].items()} == {"ok": 1, "wrong": 2, "malformed": 1}


def commands(heading: str) -> list[list[str]]:
    block = re.search(rf"## {heading}\n.*?```sh\n(.*?)```", README, re.DOTALL)
    assert block is not None
    return [line.split("#")[0].split() for line in block[1].splitlines()]


def test_the_commands_on_rewards_exit_as_they_say(demo: Path) -> None:
    (demo / "right.jsonl").write_text(BLOCKS["samples.jsonl"].splitlines(keepends=True)[0], encoding="utf-8")
    typed = commands("Debug a reward without training")
    assert ["head", "-n", "1", "samples.jsonl", ">", "right.jsonl"] in typed
    assert sorted({words[1] for words in typed if words[0] == "rlcore"}) == ["audit", "score"]
    slow = ["rlcore", "audit", "--reward", "boxed"]  # seconds; the plugin's own tests audit it
    assert slow in typed
    said = [run(demo, *words[1:]) for words in typed if words[0] == "rlcore" and words != slow]
    assert "findings: none" in said[-1]


def test_the_same_loss_from_a_python_script(demo: Path) -> None:
    said = run_script(demo, BLOCKS["train_my_loss.py"].replace("max_steps=3", "max_steps=2, eval_interval=0"))
    assert '"loss/held"' in metrics(demo)
    assert Path(demo, said.strip().splitlines()[-1]).is_dir()


def test_the_python_example_of_the_tour(demo: Path) -> None:
    text = re.search(r"From Python.*?```python\n(.*?)```", README, re.DOTALL)
    assert text is not None
    run_script(demo, text[1].replace("max_steps=20", "max_steps=2, eval_interval=0"))


def test_the_reward_plugin_is_found_judges_and_conforms(demo: Path, tmp_path: Path) -> None:
    source = demo / "rlcore-plugin-palindrome"
    project = tomllib.loads(BLOCKS["rlcore-plugin-palindrome/pyproject.toml"])["project"]
    ((name, module),) = project["entry-points"]["rlcore"].items()
    info = source / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[rlcore]\n{name} = {module}\n")
    assert "palindrome" in run_alone(demo, "show", "reward", "palindrome", path=str(source))
    pytest_program = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    suite = run_alone(tmp_path, str(source / "tests"), code=pytest_program, path=str(source))
    assert "passed" in suite


def tour() -> list[str]:
    block = re.search(r"## A tour in 20 lines\n\n```sh\n(.*?)```", README, re.DOTALL)
    assert block is not None
    return [line.split("#")[0].strip() for line in block[1].splitlines() if line.strip()]


def test_the_tour_is_short_and_names_commands_that_exist() -> None:
    assert len(tour()) <= 20
    assert {line.split()[1] for line in tour()} <= set(command_lines())


@pytest.mark.parametrize("line", [line for line in tour() if "train" in line or "show" in line or "plugins" in line])
def test_every_line_of_the_tour_is_accepted(demo: Path, line: str) -> None:
    words = line.split()[1:]
    dry = ["--dry-run"] if words[0] == "train" and "--dry-run" not in words and "--help" not in words else []
    run(demo, *words, *dry)


def test_the_two_commands_and_every_make_target_of_the_docs_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert "make quickstart" in README
    assert "make test" in README
    for text in (README, (ROOT / "CONTRIBUTING.md").read_text()):
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
