"""The contract suites and the own tests of the transformers and torch backends, by pytest, on the device and in a precision."""

from __future__ import annotations

import os
import re
import subprocess
import sys

from benchmarks.gpu.setting import REPOSITORY, Outcome, Setting

__all__ = ["SUITES", "conformance", "counted", "own_tests"]

_BACKENDS = REPOSITORY / "plugins" / "backends"
SUITES = ("torch/tests/test_torch_conforms.py", "transformers/tests/test_transformers_conforms.py")
_QUICK = "test_sleeps_and_wakes or test_logprobs_are_those_of_the_probe"
"""Tests that a tiny run selects."""


def conformance(setting: Setting, dtype: str) -> Outcome:
    """Both suites; the case with two ranks, which needs two devices, stays out with the other tests marked ``full``."""
    return _pytest(setting, dtype, *(str(_BACKENDS / suite) for suite in SUITES))


def own_tests(setting: Setting) -> Outcome:
    """Every fast test of the two backends."""
    return _pytest(setting, "float32", *(str(_BACKENDS / name / "tests") for name in ("torch", "transformers")))


def _pytest(setting: Setting, dtype: str, *targets: str) -> Outcome:
    # A warning is an error at home, where versions are pinned; a GPU machine has its own.
    options = ["-m", "not full and not nightly", "-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", "-o", "timeout=120"]
    quick = ["-k", _QUICK] if setting.tiny else []
    environment = {**os.environ, "RLCORE_TEST_DEVICE": setting.device, "RLCORE_TEST_DTYPE": dtype}
    command = [sys.executable, "-m", "pytest", *options, *quick, "--tb=short", *targets]
    done = subprocess.run(
        command, cwd=REPOSITORY, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
    )
    print(done.stdout, flush=True)
    figures = counted(done.stdout)
    failed = re.findall(r"^(?:FAILED|ERROR) (\S+)", done.stdout, re.MULTILINE)
    good = done.returncode == 0 and figures.get("passed", 0) > 0
    said = ", ".join(f"{count} {fate}" for fate, count in figures.items()) or f"pytest ended with {done.returncode}"
    if failed:
        said += ": " + ", ".join(name.rpartition("::")[2] for name in failed[:5])
    return Outcome(said=said, figures={**figures, "failing": failed}, status="done" if good else "failed")


def counted(output: str) -> dict[str, int]:
    """Fate -> tests, from pytest's last line; {} where it has none."""
    last = next((line for line in reversed(output.splitlines()) if re.search(r"\d+ (passed|failed|error)", line)), "")
    return {fate.rstrip("s"): int(count) for count, fate in re.findall(r"(\d+) (passed|failed|skipped|errors?)", last)}
