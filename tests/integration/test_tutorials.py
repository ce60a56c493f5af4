"""docs/tutorials/*: a reader with an empty folder types each command and writes each file, in order, and sees what the page says."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from rlcore.testing.run_tester import PROGRAM, QUIET
from tests.page_walk import BLOCK, PageWalk

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"
PALINDROME = ("pip install -e rlcore-plugin-palindrome pytest", "rlcore show reward palindrome", "pytest rlcore-plugin-palindrome")


def test_own_loss(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    typed = PageWalk(tmp_path, tmp_path_factory).read(TUTORIALS / "own_loss.md")
    (compared,) = (said for line, said in typed.items() if line.startswith("rlcore compare"))
    assert "my_loss.py:MyLoss" in compared
    assert "loss/held" in compared
    assert "15 passed" in typed["pytest test_my_loss.py"]
    assert (tmp_path / typed["python train_my_loss.py"].splitlines()[-1]).is_dir()


def test_own_reward(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    typed = PageWalk(tmp_path, tmp_path_factory, dict.fromkeys(PALINDROME, "")).read(TUTORIALS / "own_reward.md")
    assert "0.312     0.250" in typed["rlcore score samples.jsonl --reward ./my_reward.py:in_place"]
    assert "agree on 4 of 4" in typed["rlcore score samples.jsonl --reward boxed --against ./my_reward.py:in_place"]
    assert "findings: none" in typed["rlcore audit --reward ./my_reward.py:in_place --data right.jsonl"]
    assert "in_place" in typed["rlcore rollouts demo/runs/my_reward --step 1 -n 1"]
    the_package_is_found_judges_and_conforms(tmp_path / "rlcore-plugin-palindrome")


def the_package_is_found_judges_and_conforms(source: Path) -> None:
    """Each in a process of its own, as the package is there from its start: pip would have written the folder ``.dist-info``."""
    project = tomllib.loads((source / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    ((name, module),) = project["entry-points"]["rlcore"].items()
    info = source / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n")
    (info / "entry_points.txt").write_text(f"[rlcore]\n{name} = {module}\n")
    assert "palindrome" in run_alone(source, PROGRAM, "show", "reward", "palindrome")
    suite = "import sys, pytest; sys.exit(pytest.main(['-q', '-p', 'no:cacheprovider', *sys.argv[1:]]))"
    assert "passed" in run_alone(source, suite, str(source / "tests"))


def run_alone(source: Path, code: str, *words: str) -> str:
    environment = os.environ | QUIET | {"PYTHONPATH": str(source), "HF_HUB_OFFLINE": "1"}
    done = subprocess.run([sys.executable, "-c", code, *words], cwd=source, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_own_data(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    typed = PageWalk(tmp_path, tmp_path_factory).read(TUTORIALS / "own_data.md")
    assert (tmp_path / "train.csv").read_text().splitlines()[:2] == ["problem,solution", "sort 6 9 0 2 4 3 5 1,0 1 2 3 4 5 6 9"]
    trained, held_out = ((tmp_path / name).read_text().splitlines() for name in ("train.csv", "heldout.csv"))
    assert (len(trained), len(held_out), trained[0]) == (1001, 101, held_out[0])
    assert "sort        8  0.000 " in typed["rlcore eval demo/base own.toml --eval-temperature 0"]
    assert "partial.py:digits" in typed["rlcore compare runs/own runs/partial"]
    assert "sort " in typed["rlcore rollouts runs/partial --eval sort -n 3"]


def test_first_run(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    last = "rlcore rollouts demo/runs/quickstart --eval sort --step {} -n 1"
    typed = PageWalk(tmp_path, tmp_path_factory, {last.format(100): last.format(2)}).read(TUTORIALS / "first_run.md")
    assert "reward " in typed["rlcore quickstart demo"]
    assert "report.html" in typed["rlcore report demo/runs/quickstart"]
    assert "step 1, prompt train:" in typed["rlcore rollouts demo/runs/quickstart --step 1 -n 1"]
    assert "step 2, prompt heldout:" in typed[last.format(100)]
    assert "training.learning_rate" in typed["rlcore compare demo/runs/quickstart demo/runs/slower"]


def test_evaluate(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    wrong = "rlcore rollouts demo/runs/slow --eval sort --step {} --outcome wrong -n 1"
    typed = PageWalk(tmp_path, tmp_path_factory, {wrong.format(40): wrong.format(2)}).read(TUTORIALS / "evaluate.md")
    (several,) = (said for line, said in typed.items() if "--best --eval-samples 4" in line)
    assert "pass@4" in several
    assert "paired" in typed["rlcore compare before.jsonl after.jsonl --metric eval/sort"]
    assert "eval/sort/pass@4" in typed["rlcore compare before4.jsonl after4.jsonl --metric eval/sort/pass@4"]
    assert "training.learning_rate" in typed["rlcore compare demo/runs/quickstart demo/runs/slow --metric eval/sort reward/mean"]


@pytest.mark.full
def test_agent(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    typed = PageWalk(tmp_path, tmp_path_factory).read(TUTORIALS / "agent.md")
    played = (tmp_path / "demo" / "calculator.py").read_text(encoding="utf-8").partition("async def play")[2].partition("\n\n\n")[0]
    shown = (tmp_path / "excerpt.py").read_text(encoding="utf-8")
    assert shown.splitlines()[1:] == [line for line in played.splitlines()[1:] if '"""' not in line]
    assert "mine.py:play" in typed["rlcore compare demo/runs/quickstart demo/runs/mine --metric eval/tools reward/mean"]
    assert "the policy wrote the lines with a bar" in typed["rlcore rollouts demo/runs/quickstart --step 1 -n 1"]


def test_cluster(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Other tests start several processes, Ray and Slurm: tests/integration/test_local_processes.py, ray/, tests/slurm."""
    page = TUTORIALS / "cluster.md"
    several, joined, divided = ("-i 2 -t 2 --runtime local", "--master_address", "rlcore plan --devices 8")
    lines = [line for block in BLOCK.findall(page.read_text(encoding="utf-8")) for line in block[2].splitlines() if block[1] == "sh"]
    planned = {line: f"{line} --dry-run" for line in lines if several in line or joined in line or line == divided}
    assert len(planned) == 3
    elsewhere = {line: "" for line in lines if line.startswith(("ray ", "sbatch "))}
    assert len(elsewhere) == 3
    typed = PageWalk(tmp_path, tmp_path_factory, planned | elsewhere).read(page)
    assert (tmp_path / "demo" / "run.sbatch").is_file()
    assert "-t 8 -zero 3" in typed["rlcore plan memory --model-size 7b -t 8 -zero 3"]
