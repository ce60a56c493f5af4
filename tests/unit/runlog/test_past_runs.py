"""From which checkpoint a run goes on, who may write it, and which checkpoints stay."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from rlcore.api import RunError
from rlcore.contracts.errors import ConfigError, UsageError
from rlcore.runlog.checkpoint import Checkpoint, checkpoint_steps, prune, verify
from rlcore.runlog.past_runs import NoCheckpointError, find_checkpoint, past_runs
from rlcore.runlog.run_lock import last_writer, locked, sign


def write_model(folder: Path) -> None:
    (folder / "model").mkdir()
    (folder / "model" / "weights").write_bytes(b"abc" * 1000)
    (folder / "trainer").mkdir()
    (folder / "trainer" / "state").write_bytes(b"def")
    (folder / "trainer" / "consumer.json").write_text('{"backend": "Mine", "skipped_steps": 0}')


STATE: dict[str, Any] = {"coordinator": {}, "watch": {}}


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints of steps 2, 4 and 10, moved elsewhere by ``-sd``."""
    root = tmp_path / "runs" / "project" / "20260101-000000-abc"
    root.mkdir(parents=True)
    (root / "run.toml").write_text(f'[log]\nsave_dir = "{tmp_path / "elsewhere"}"\n')
    (root / "manifest.json").write_text("{}")
    (tmp_path / "elsewhere" / root.name).mkdir(parents=True)
    for step in (2, 10, 4):
        Checkpoint(tmp_path / "elsewhere" / root.name, step, write_model, {**STATE, "version": step}).finish()
    return root


def checkpoint(run: Path, step: int) -> Path:
    return find_checkpoint(run, step).checkpoint


def test_the_newest_is_taken_or_the_one_that_was_asked_for(run: Path) -> None:
    newest = find_checkpoint(run)
    assert (newest.step, newest.state, newest.run) == (10, {**STATE, "version": 10}, run)
    assert find_checkpoint(run, 4).step == 4
    with pytest.raises(ConfigError, match=r"has no checkpoint of step 3: there are steps 2, 4, 10$"):
        find_checkpoint(run, 3)


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: flip(path / "model/weights"), r"step-10/model/weights has changed since it was saved"),
        (lambda path: (path / "trainer/state").unlink(), r"step-10/trainer/state is absent"),
        (lambda path: (path / "model/weights").write_bytes(b"abc"), r"step-10/model/weights has 3 bytes, and checkpoint.json says 3000"),
        (lambda path: (path / "checkpoint.json").unlink(), r"step-10/checkpoint.json is absent"),
        (lambda path: (path / "checkpoint.json").write_text("[]"), r"step-10/checkpoint.json cannot be understood"),
        (lambda path: flip(path / "state.json"), r"step-10/state.json has changed since it was saved"),
    ],
)
def test_a_damaged_one_is_named_and_the_newest_whole_one_used(run: Path, damage: object, said: str) -> None:
    assert callable(damage)
    damage(checkpoint(run, 10))
    told: list[str] = []
    assert find_checkpoint(run, say=told.append).step == 4
    (sentence,) = told
    assert sentence.startswith("warning: the checkpoint of step 10 cannot be used: ")
    with pytest.raises(ConfigError, match=said):
        find_checkpoint(run, 10)
    with pytest.raises(ConfigError, match=said):
        verify(run.parents[2] / "elsewhere" / run.name / "step-10")


@pytest.mark.parametrize(
    ("file", "text", "said"),
    [
        ("state.json", '{"watch": {}, "logs": {}}', r"step-10/state.json is damaged, or another version .* \(KeyError: 'coordinator'\)"),
        ("state.json", "[]", r"step-10/state.json is damaged, or another version of rlcore wrote it \(TypeError"),
        ("state.json", '{"coordinator": 1, "watch": {}, "logs": {}}', r"its coordinator cannot be understood"),
        ("trainer/consumer.json", "{}", r"step-10/trainer/consumer.json is damaged.*KeyError: 'backend'"),
        ("trainer/consumer.json", None, r"step-10/trainer/consumer.json is damaged.*it is absent"),
    ],
)
def test_one_that_another_version_wrote_is_told(run: Path, file: str, text: str | None, said: str) -> None:
    path = checkpoint(run, 10)
    marker = json.loads((path / "checkpoint.json").read_text())
    (path / file).unlink()
    del marker["files"][file]
    if text is not None:
        (path / file).write_text(text)
    (path / "checkpoint.json").write_text(json.dumps(marker))
    with pytest.raises(ConfigError, match=said):
        find_checkpoint(run, 10)
    assert find_checkpoint(run).step == 4


def test_one_that_was_renamed_is_not_taken_for_another_step(run: Path) -> None:
    folder = checkpoint(run, 10).parent
    (folder / "step-4").rename(folder / "step-5")
    (folder / "step-12").write_text("a file")
    (folder / "step-02").mkdir()
    assert checkpoint_steps(folder) == [2, 5, 10]
    with pytest.raises(ConfigError, match=r"step-5 is the checkpoint of step 4, by its checkpoint.json; rename it back"):
        find_checkpoint(run, 5)


def test_a_run_without_a_whole_checkpoint_says_which_of_the_two_it_is(run: Path) -> None:
    for step in (2, 4, 10):
        flip(checkpoint(run, step) / "model" / "weights")
    with pytest.raises(ConfigError, match=r"none of its 3 checkpoints is complete; the checkpoint of step 2 .*weights has changed since"):
        find_checkpoint(run)
    (run / "run.toml").write_text("")
    with pytest.raises(ConfigError, match=rf"the folder of its checkpoints, {run}/checkpoints, is absent") as absent:
        find_checkpoint(run)
    assert not isinstance(absent.value, NoCheckpointError)
    (run / "checkpoints").mkdir()
    with pytest.raises(NoCheckpointError, match="ended before its first checkpoint"):
        find_checkpoint(run)


def test_the_newest_and_the_protected_ones_stay(run: Path) -> None:
    folder = checkpoint(run, 2).parent
    prune(folder, 1, {2})
    assert checkpoint_steps(folder) == [2, 10]
    assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-10", "step-2"]
    verify(folder / "step-2")


def test_runs_of_a_project_come_newest_first(run: Path) -> None:
    later = run.with_name("20260102-000000-aaa")
    later.mkdir()
    assert [found.root for found in past_runs(run.parent)] == [run]
    (later / "run.toml").write_text("")
    assert [found.root for found in past_runs(run.parent)] == [run]  # a file of a user's
    (later / "checkpoints").mkdir()
    assert [found.root for found in past_runs(run.parent)] == [later, run]
    assert past_runs(run)[0].finished is None
    (run / "summary.json").write_text(json.dumps({"interrupted": True, "steps": 3}))
    assert past_runs(run)[0].finished is None
    (run / "summary.json").write_text(json.dumps({"interrupted": False, "steps": 3}))
    assert past_runs(run)[0].finished == 3


HOLDER = """
import sys; from pathlib import Path; from rlcore.runlog.run_lock import locked, sign
with locked(Path(sys.argv[1])): sign(Path(sys.argv[1])); print("held", flush=True); sys.stdin.read()
"""


def test_two_processes_never_hold_one_run_and_a_killed_one_holds_nothing(run: Path) -> None:
    other = subprocess.Popen([sys.executable, "-c", HOLDER, str(run)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert last_writer(run).startswith(f"process {other.pid} on ")
        with pytest.raises(UsageError, match=f"is being written by process {other.pid} on "), locked(run):
            pass
    finally:
        other.kill()
        other.communicate()
    with locked(run):
        assert (run / ".lock").read_text() == ""  # the dead one is not named
    with locked(run), locked(run):  # again in the same thread: a command holds it around the run
        assert last_writer(run) == ""
        sign(run)
        refused: list[str] = []

        def second() -> None:
            try:
                with locked(run):
                    pass
            except UsageError as error:
                refused.append(str(error))

        thread = threading.Thread(target=second)
        thread.start()
        thread.join()
        assert len(refused) == 1
    assert (run / ".lock").read_text() == ""


def test_the_training_goes_on_while_a_checkpoint_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlcore.runlog import checkpoint as module

    hashed, go = threading.Event(), threading.Event()
    inventory = module._inventory

    def slow(folder: Path, given_up: threading.Event) -> dict[str, dict[str, object]]:
        hashed.set()
        assert go.wait(20)
        return inventory(folder, given_up)

    monkeypatch.setattr(module, "_inventory", slow)
    said: list[str] = []
    saving = Checkpoint(tmp_path, 1, write_model, {}, lambda: said.append("named"))
    assert hashed.wait(20)
    assert not saving.done()
    assert not (tmp_path / "step-1").exists()
    go.set()
    assert saving.finish() == tmp_path / "step-1"
    assert (saving.done(), said) == (True, ["named"])


def test_what_fails_beside_the_training_is_raised_by_finish_and_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", "weights")

    monkeypatch.setattr("rlcore.runlog.checkpoint._inventory", full)
    saving = Checkpoint(tmp_path, 1, write_model, {})
    with pytest.raises(RunError, match=r"weights: cannot be written \(disk full\)"):
        saving.finish()
    assert list(tmp_path.iterdir()) == []


def test_of_two_runs_that_began_in_one_second_the_later_is_the_newest(tmp_path: Path) -> None:
    for name, written in (("20260101-000000-ff", 1), ("20260101-000000-aa", 2), ("20251231-000000-bb", 3)):
        (tmp_path / name / "checkpoints").mkdir(parents=True)
        (tmp_path / name / "run.toml").write_text("")
        os.utime(tmp_path / name / "run.toml", ns=(written, written))
    assert [run.root.name[-2:] for run in past_runs(tmp_path)] == ["aa", "ff", "bb"]
