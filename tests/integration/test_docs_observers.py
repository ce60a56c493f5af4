"""The plugin of docs/authors/observers.md: its own tests pass as printed, and the page lists every hook with its arguments."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from rlcore.contracts import hookspecs
from rlcore.testing import FakeTraining, RunTester

PAGE = (Path(__file__).parents[2] / "docs" / "authors" / "observers.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"<!-- test: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
EARLY = ("rlcore_check_run", "rlcore_note_run", "rlcore_remark_run", "rlcore_check_machine", "rlcore_note_data")


def test_the_tests_of_the_page_pass(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_acme_bell.py"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "4 passed" in done.stdout


def test_the_page_lists_every_hook_of_a_run_with_its_arguments() -> None:
    for name in (*EARLY, *hookspecs.OBSERVING_HOOKS):
        arguments = ", ".join(inspect.signature(getattr(hookspecs, name)).parameters)
        assert f"| `{name}({arguments})` |" in PAGE


RECORDER = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
def _add(text):
    with open("calls.txt", "a") as file:
        print(text, file=file)
@hookimpl
def rlcore_check_run(config): return _add("check_run") or []
@hookimpl
def rlcore_note_run(config): return _add("note_run") or []
@hookimpl
def rlcore_check_machine(plan): return _add("check_machine") or []
@hookimpl
def rlcore_run_started(run): _add(f"started {run.step}")
@hookimpl
def rlcore_groups_scored(groups, version): _add(f"scored {version}")
@hookimpl
def rlcore_step_finished(step):
    _add(f"step {step}")
    print(f"update {step} is seen", flush=True)
@hookimpl
def rlcore_checkpoint_saved(step): _add(f"saved {step}")
@hookimpl
def rlcore_run_timed(rows): _add("timed")
@hookimpl
def rlcore_run_finished(summary): _add(summary.get("error") or f"finished, interrupted: {summary['interrupted']}")
"""


@pytest.fixture
def recorded(tmp_path: Path) -> RunTester:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("recorder", source=RECORDER)
    return tester


def calls(tester: RunTester) -> list[str]:
    """What was called since the last look."""
    file = tester.folder / "calls.txt"
    found = file.read_text(encoding="utf-8").splitlines()
    file.unlink()
    return found


def test_the_order_of_the_page_is_that_of_a_run_and_of_a_resumed_one(recorded: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded.folder)
    config = recorded.fake_run(run={"max_steps": 2})
    told = recorded.run("train", config, "--json").assert_ok().json
    before = ["check_run", "note_run", "check_machine"]
    of_two = ["scored 0", "step 1", "scored 1", "step 2", "saved 2", "timed", "finished, interrupted: False"]
    assert calls(recorded) == [*before, "started 0", *of_two]
    recorded.run("train", config, "--dry-run").assert_ok()
    assert calls(recorded) == before
    recorded.run("resume", told["run"], "--max-steps", "3").assert_ok()
    assert calls(recorded)[-6:] == ["started 2", "scored 2", "step 3", "saved 3", "timed", "finished, interrupted: False"]


def test_one_interrupt_ends_with_a_summary(recorded: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded.folder)
    config = recorded.fake_run(run={"max_steps": 5000, "num_episodes": 5000})
    recorded.interrupt("train", config, on=lambda line: "update 2 is seen" in line)
    found = calls(recorded)
    assert [found[-2], found[-1]] == ["timed", "finished, interrupted: True"]
    assert found[-3].startswith("saved ")


def test_a_failure_ends_with_its_error_alone(recorded: RunTester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(recorded.folder)

    def fail(self: object, *arguments: object, **more: object) -> None:
        raise RuntimeError("the device is gone")

    monkeypatch.setattr(FakeTraining, "update", fail)
    assert recorded.run("train", recorded.fake_run()).exit_code == 1
    *_, before, last = calls(recorded)
    assert before == "scored 0"
    assert last.startswith("RunError: ")
    assert "the device is gone" in last
