"""`DEVICE=cpu make gpu`: the parts as processes, with tiny models, their lines, and that a second call does not run them again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from benchmarks.gpu.parts import choose
from benchmarks.gpu.runner import Runner
from benchmarks.gpu.setting import REPOSITORY
from benchmarks.gpu.table import BEGIN, END

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
STUCK = """
import pathlib, sys, time
if "--scratch" in sys.argv:
    (pathlib.Path(sys.argv[sys.argv.index("--scratch") + 1]) / "weights").touch()
    pathlib.Path(__file__).with_name("begun").touch()
    time.sleep(3600)
"""
"""A torch that never finishes loading in a part's process, after the part has written something."""
DAILY = ("quickstart", "sleep", "throughput-0.6b", "trace", "peers-0.6b")
ONE_OF_EACH = ("contracts-bf16", *DAILY)


def gpu(folder: Path, *words: str, code: int = 0) -> tuple[dict[str, Any], str]:
    """(last line, what was said)."""
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--folder", str(folder), *words]
    done = subprocess.run(command, cwd=REPOSITORY, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    return json.loads(done.stdout.splitlines()[-1]) if code == 0 else {}, done.stderr


@pytest.mark.nightly
@pytest.mark.parametrize("parts", [pytest.param(DAILY, id="daily"), pytest.param(ONE_OF_EACH, id="all")])
def test_the_parts_run_on_a_cpu_and_are_not_run_twice(tmp_path: Path, parts: tuple[str, ...]) -> None:
    only = [word for name in parts for word in ("--only", name)]
    last, said = gpu(tmp_path, *only)
    assert set(last["parts"]) == set(parts)
    peers = last["parts"].pop("peers-0.6b")
    assert peers["status"] in ("done", "not run"), peers
    assert {name: part["status"] for name, part in last["parts"].items()} == dict.fromkeys(last["parts"], "done")
    if "contracts-bf16" in parts:
        assert last["parts"]["contracts-bf16"]["figures"]["passed"] >= 2
    assert last["parts"]["quickstart"]["figures"]["steps"] == 2
    assert last["parts"]["throughput-0.6b"]["figures"]["rlcore"]["generated_tokens"] > 0
    assert last["machine"]["device"] == "cpu"
    results = tmp_path / "cpu-tiny"
    rows = [line.split(" | ")[0].strip("| ") for line in (results / "results.md").read_text().splitlines() if line.startswith("| ")]
    assert [row for row in rows if row in parts] == list(parts)
    assert "### Heaviest operations" in said
    assert sorted(path.name for path in results.glob("trace-*")) == ["trace-generation.json.gz", "trace-update.json.gz"]
    before = (results / "results.jsonl").read_text()
    again, said = gpu(tmp_path, "--only", "sleep", "--only", "trace")
    assert said.count("done before") == 2
    assert (results / "results.jsonl").read_text() == before
    assert set(again["parts"]) == set(parts)


@pytest.fixture
def stuck(tmp_path: Path) -> Path:
    """First on a path, it has every part hang; its ``begun`` is there as soon as one does."""
    folder = tmp_path / "stuck"
    (folder / "torch").mkdir(parents=True)
    (folder / "torch" / "__init__.py").write_text(STUCK)
    return folder


def test_a_part_that_runs_too_long_is_ended_and_runs_again(tmp_path: Path, stuck: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.gpu.runner.LIMIT", 3)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    runner = Runner(device="cpu", tiny=True, folder=tmp_path, path=(str(stuck), str(REPOSITORY)), say=lambda line: None)
    runner.run(choose(["sleep"]))
    line = runner.results.lines()["sleep"]
    assert line["status"] == "failed"
    assert line["said"].startswith("ran longer than 3 s")
    assert runner.results.done() == set()
    assert list((tmp_path / "temporary").iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_signal_ends_the_part_that_is_running_too(tmp_path: Path, stuck: Path, number: signal.Signals) -> None:
    (tmp_path / "temporary").mkdir()
    environment = {**os.environ, "PYTHONPATH": str(stuck), "TMPDIR": str(tmp_path / "temporary")}
    command = [sys.executable, "-m", "benchmarks.gpu", "--device", "cpu", "--only", "sleep", "--folder", str(tmp_path)]
    process = subprocess.Popen(
        command,
        cwd=REPOSITORY,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),  # under nohup these tests ignore SIGHUP, and so would their children
    )
    part: list[str] = []
    try:
        while not (stuck / "torch" / "begun").exists():
            assert process.poll() is None
            time.sleep(0.05)
        part = children(process.pid)
        process.send_signal(number)
        _, said = process.communicate()
        left = [pid for pid in part if Path(f"/proc/{pid}").exists()]
    finally:
        process.kill()
        for pid in part:
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
    assert process.returncode == 128 + number, said
    assert "Traceback" not in said
    assert (len(part), left) == (1, [])
    assert list((tmp_path / "temporary").iterdir()) == []


def children(pid: int) -> list[str]:
    return [child for task in Path(f"/proc/{pid}/task").iterdir() for child in (task / "children").read_text().split()]


def test_a_part_that_breaks_says_how(tmp_path: Path) -> None:
    """Its process finds another torch first, which is none."""
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text("raise RuntimeError('libcudart is missing')\n")
    runner = Runner(device="cpu", tiny=True, folder=tmp_path, path=(str(tmp_path), str(REPOSITORY)), say=lambda line: None)
    runner.run(choose(["sleep"]))
    line = runner.results.lines()["sleep"]
    assert line["status"] == "failed"
    assert line["said"].endswith("RuntimeError: libcudart is missing")
    assert line["machine"] == {}


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--only", "slep"), "make gpu: --only 'slep': no part is called so; the parts are"),
        (("--document", "PAGE"), "make gpu: part sleep ran on a CPU or with tiny models"),
    ],
)
def test_what_is_typed_wrong_is_one_sentence(tmp_path: Path, words: tuple[str, ...], sentence: str) -> None:
    line = {"part": "sleep", "status": "done", "said": "", "seconds": 1.0, "date": "2026-01-01", "commit": None, "device": "cpu"}
    line |= {"tiny": True, "machine": {}, "figures": {}, "rows": []}
    (tmp_path / "cpu-tiny").mkdir()
    (tmp_path / "cpu-tiny" / "results.jsonl").write_text(json.dumps(line) + "\n")
    page = tmp_path / "page.md"
    page.write_text(f"{BEGIN}\n{END}\n")
    _, said = gpu(tmp_path, *(word.replace("PAGE", str(page)) for word in words), code=2)
    assert said.startswith(sentence)
    assert page.read_text() == f"{BEGIN}\n{END}\n"
    assert said.count("\n") == 1


@pytest.mark.skipif("RLCORE_TEST_DEVICE" in os.environ, reason="needs a machine without CUDA")
def test_a_machine_without_a_card_is_told_of_the_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "benchmarks.gpu", "--folder", str(tmp_path)]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=REPOSITORY, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "make gpu: torch finds no CUDA device here; DEVICE=cpu tries the parts on a CPU with tiny models\n"
