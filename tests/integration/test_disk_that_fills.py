"""A disk that fills up in the middle of a run: one sentence with the words "disk full" that says what was kept, and that is whole."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.interfaces import PendingSave
from rlcore.roles.consumer import Consumer
from rlcore.runlog.checkpoint import Checkpoint, verify
from rlcore.runlog.past_runs import past_runs
from rlcore.runtime.training_run import TrainingRun
from rlcore.testing import RunOutcome, RunTester
from tests.letters_model import write_model
from tests.mounts import fill, mounted, remount

PAGE = 4096
REAL = {"inference": {"name": "transformers"}, "training": {"name": "torch"}}
FILLS = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
@hookimpl
def rlcore_step_finished(step, metrics):
    if step == 4:
        with open("disk/ballast", "wb", buffering=0) as file:  # written, because the room changes while the trainer writes
            try:
                while file.write(bytes(4096)): pass
            except OSError: pass
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted(tmp_path / "disk", 20_000) as folder:
        yield folder


def project(tmp_path: Path, **sections: Mapping[str, Any]) -> tuple[RunTester, str]:
    """Four updates of a run in ``disk`` that writes everything at each."""
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    held_out = {"held": str(tester.fake_data("held.jsonl", "abcd"))}
    defaults: dict[str, Mapping[str, Any]] = {
        "run": {"num_episodes": 20, "max_steps": 4, "run_dir": "disk"},
        "log": {"save_interval": 1, "rollout_interval": 1},
        "eval": {"eval_dataset": held_out, "eval_interval": 1},
    }
    return tester, tester.fake_run(**{name: {**defaults.get(name, {}), **sections.get(name, {})} for name in defaults | sections})


def assert_told(tester: RunTester, done: RunOutcome, kept: int | None = None) -> str:
    """The one sentence of a full disk; what it says was kept is there and whole, and nothing is half there. ``kept``: of which step."""
    assert done.exit_code == 1, done
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("error: ")]
    assert "Traceback" not in done.stderr
    assert "disk full" in sentence
    assert sentence.count("disk full") == 1
    runs = past_runs(tester.folder / "disk" / "rlcore")
    if not runs:
        assert re.search(r"(run\.toml|manifest\.json): cannot be written", sentence)
        return sentence
    (run,) = runs
    assert not [path for path in run.root.rglob("*.partial") if path.name.startswith(".step-")]
    for log in run.root.rglob("*.jsonl"):
        assert all(map(json.loads, log.read_text().splitlines()))
    found = re.search(r"the last checkpoint is (\S+)$", sentence)
    if found is not None:
        verify(tester.folder / found[1])
    else:
        assert sentence.endswith("; nothing was saved yet")
    if kept is not None:
        assert found is not None
        assert found[1].endswith(f"step-{kept}")
    return sentence


@pytest.mark.full
def test_wherever_it_strikes_the_words_are_the_same(tmp_path: Path, disk: Path) -> None:
    tester, config = project(tmp_path)
    culprits = set()
    for pages in (4, 6, 7, 8, 12, 15, 23, 40, 46):
        remount(disk, f"size={pages * PAGE}")
        sentence = assert_told(tester, tester.run("train", config))
        culprits.add(re.sub(r"\d+", "N", sentence.split("disk full")[0].split("/")[-1].split(":")[0].split(" ")[0]))
        for left in disk.iterdir():
            shutil.rmtree(left)
    assert len(culprits) >= 4, culprits


def full_from(monkeypatch: pytest.MonkeyPatch, disk: Path, step: int, leave: Callable[[], int]) -> None:
    """When the checkpoint of ``step`` begins to be filled, the disk has ``leave()`` bytes left."""
    real = Consumer.save

    def save(self: Consumer, folder: Path) -> PendingSave:
        if folder.name == f".step-{step}.partial":
            fill(disk, leave())
        return real(self, folder)

    monkeypatch.setattr(Consumer, "save", save)


@pytest.mark.full
@pytest.mark.parametrize(
    ("beside", "words"),
    [
        (-2 * PAGE, r"TorchBackend failed while saving into \S+/model: disk full \(SafetensorError"),
        (4 * PAGE, r"TorchBackend failed while saving into \S+/trainer: RuntimeError: .*; disk full: \S+/checkpoints"),
        (9 * PAGE, r"disk full"),
        (40 * PAGE, r"disk full"),
    ],
    ids=["model", "state of the trainer", "tokenizer", "moments"],
)
def test_libraries_that_call_it_otherwise_are_told_in_the_same_words(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch, beside: int, words: str
) -> None:
    write_model(tmp_path / "tiny")
    tester, config = project(tmp_path, **REAL, model={"model": "tiny"})
    weights = "checkpoints/step-1/model/*.safetensors"
    full_from(monkeypatch, disk, 2, lambda: sum(path.stat().st_blocks * 512 for path in disk.rglob(weights)) + beside)
    sentence = assert_told(tester, tester.run("train", config), kept=1)
    assert re.search(words, sentence), sentence


def test_the_tokenizer_and_what_a_trainer_writes_beside_the_training_are_told_too(
    tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = {"name": "fake", "options": {"save_seconds": 0.01}}
    tester, config = project(tmp_path, training=training, log={"save_interval": 2})
    full_from(monkeypatch, disk, 4, lambda: 2 * PAGE)
    assert_told(tester, tester.run("train", config), kept=2)


def test_what_is_written_at_the_end_needs_no_second_training(tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real, ballast = TrainingRun._trained, []

    def trained(self: TrainingRun, *given: Any) -> Any:
        timing = real(self, *given)
        ballast.append(fill(disk))
        return timing

    tester, config = project(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(TrainingRun, "_trained", trained)
        sentence = assert_told(tester, tester.run("train", config), kept=4)
    assert re.search(r"(times\.jsonl|trace\.json|summary\.json): cannot be written", sentence)
    ballast[0].unlink()
    done = tester.run("train", config, "--resume", "auto", "--json").assert_ok()
    assert done.json["steps"] == 4
    (root,) = [found.root for found in past_runs(disk / "rlcore")]
    rows = [json.loads(line) for line in (root / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows if "seconds" in row] == [1, 2, 3, 4]


@pytest.mark.full
def test_a_trainer_in_a_process_of_its_own_says_the_same(tmp_path: Path, disk: Path) -> None:
    tester, config = project(
        tmp_path,
        run={"max_steps": 8},
        schedule={"max_staleness": 1},
        log={"save_interval": 2, "rollout_interval": 0},
        eval={"eval_interval": 0},
    )
    tester.in_process = False
    tester.plugins.install("fills", FILLS)
    assert_told(tester, tester.run("train", config), kept=2)


def test_errors_of_the_last_rewards_do_not_hide_that_the_disk_was_full(tmp_path: Path, disk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tester, config = project(tmp_path, schedule={"reward_error_budget": 1.0}, eval={"eval_interval": 0})
    tester.write("odd.py", "def odd(item):\n    if item.columns['gt_answer'] == 'a': raise ValueError('no a')\n    return 0.5\n")
    real = Checkpoint.__init__

    def begin(self: Checkpoint, folder: Path, step: int, *given: Any) -> None:
        if step == 2:
            fill(disk)
        real(self, folder, step, *given)

    monkeypatch.setattr(Checkpoint, "__init__", begin)
    assert_told(tester, tester.run("train", config, "-rt", "./odd.py:odd"), kept=1)
