"""SIGTERM: before the training begins it ends the command at once, with exit code 143; during training the step is saved, exit code 130."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from rlcore.testing import RunTester
from rlcore.testing.run_tester import PROGRAM, QUIET


def terminated(tester: RunTester, when: Callable[[], bool], *words: str) -> tuple[int, str, str]:
    """Run ``rlcore words`` and send it SIGTERM as soon as ``when`` is true; return its exit code and output."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, *words],
        cwd=tester.folder,
        env={**tester.plugins.environment, **QUIET},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        encoding="utf-8",
    ) as process:
        while not when() and process.poll() is None:
            time.sleep(0.02)
        process.send_signal(signal.SIGTERM)
        out, said = process.communicate(timeout=60)
    return process.returncode, out, said


_SLOW = "import pathlib, time\npathlib.Path({marker!r}).touch()\ntime.sleep(60)\n\ndef score(item):\n    return 1.0\n"


@pytest.mark.parametrize("stage", ["plugins are imported", "reward workers start"])
def test_before_the_training_begins(tmp_path: Path, stage: str) -> None:
    tester = RunTester(tmp_path).with_fakes()
    config, source = tester.fake_run(), _SLOW.format(marker=str(tmp_path / "begun"))
    words = ["train", config, "-q"]
    if stage == "plugins are imported":
        tester.plugins.install("slow", source)
    else:
        tester.write("slow.py", source)
        words += ["--reward", "./slow.py:score"]
    code, _, said = terminated(tester, (tmp_path / "begun").exists, *words)
    assert (code, said) == (143, "error: interrupted\n")
    assert not (tmp_path / "runs").exists()


def test_during_the_training(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    config = tester.fake_run(run={"num_episodes": 2_000, "max_steps": 4_000})
    code, out, said = terminated(tester, lambda: any(tmp_path.glob("runs/*/*/metrics.jsonl")), "train", config)
    assert code == 130, said
    assert "Traceback" not in said
    assert "interrupted: this step is finished and saved" in out + said
    assert any(tmp_path.glob("runs/*/*/checkpoints/step-*/checkpoint.json"))
