"""A trainer that writes its checkpoints while it trains on: the run waits for each before the next one and at the end."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective
from rlcore.runtime.training_run import TrainingRun
from rlcore.testing import FakePolicy, FakeTraining, RunOutcome, RunTester
from rlcore.testing.training import fake_training

OBSERVER = """
from rlcore.api import hookimpl
rlcore_api = "2.0"
@hookimpl
def rlcore_checkpoint_saved(step, folder):
    with open("events.txt", "a") as file: file.write(f"saved {step} {(folder / 'model/fake_policy.npz').exists()}\\n")
@hookimpl
def rlcore_step_finished(step, metrics):
    with open("events.txt", "a") as file: file.write(f"step {step}\\n")
"""


def run(tmp_path: Path, trainer: str = "fake", *, steps: int = 4, interval: int = 2, **options: Any) -> tuple[RunTester, RunOutcome]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("observer", OBSERVER)
    config = tester.fake_run(
        run={"num_episodes": 8, "max_steps": steps},
        training={"name": trainer, "train_batch_size": 3, "learning_rate": 0.1, "options": options},
        log={"save_interval": interval},
    )
    return tester, tester.run("train", config, "--json")


def events(tester: RunTester) -> list[str]:
    return (tester.folder / "events.txt").read_text().splitlines()


@dataclass
class Pace:
    """What waits for what, 20 s at the most. ``saves``: by the number of a save from 0, the updates that must have been made before it is
    written; ``updates``: by the number of an update from 1, the saves that must have been written before it returns; ``lag`` and ``rest``:
    seconds that each save and each update takes beside."""

    saves: dict[int, int] = field(default_factory=dict)
    updates: dict[int, int] = field(default_factory=dict)
    lag: float = 0.0
    rest: float = 0.0
    made: int = 0
    begun: int = 0
    written: int = 0
    changed: threading.Condition = field(default_factory=threading.Condition)

    def wait(self, ready: Callable[[], bool], what: str) -> None:
        if not self.changed.wait_for(ready, 20):
            raise TimeoutError(f"{what} waited in vain: {self}")


@pytest.fixture
def pace(monkeypatch: pytest.MonkeyPatch) -> Pace:
    made, update = Pace(), FakeTraining.update

    def paced(self: FakeTraining, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = update(self, batch, objective)
        with made.changed:
            made.made += 1
            made.changed.notify_all()
            made.wait(lambda: made.written >= 2 * made.updates.get(made.made, 0), f"update {made.made}")  # model and state
        time.sleep(made.rest)
        return metrics

    def held(seconds: float, write: Callable[[], None], closed: threading.Event) -> None:
        number, made.begun = made.begun // 2, made.begun + 1
        with made.changed:
            made.wait(lambda: made.made >= made.saves.get(number, 0), f"save {number}")
        time.sleep(made.lag)
        write()
        with made.changed:
            made.written += 1
            made.changed.notify_all()

    monkeypatch.setattr(FakeTraining, "update", paced)
    monkeypatch.setattr(fake_training, "_later", held)
    return made


def test_training_goes_on_while_a_save_is_written_and_the_weights_are_those_of_its_step(tmp_path: Path, pace: Pace) -> None:
    pace.saves[0] = 3
    late, done = run(tmp_path / "late", save_seconds=1)
    done.assert_ok()
    at_once, same = run(tmp_path / "once")
    same.assert_ok()
    assert [event for event in events(at_once) if event.startswith("saved")] == ["saved 2 True", "saved 4 True"]
    assert events(late).index("step 3") < events(late).index("saved 2 True") < events(late).index("saved 4 True")
    for step in (2, 4):
        policies = [
            FakePolicy.load(tester.folder / outcome.json["run"] / "checkpoints" / f"step-{step}" / "model")
            for tester, outcome in ((late, done), (at_once, same))
        ]
        assert policies[0].last.tobytes() == policies[1].last.tobytes()
        assert policies[0].pair.tobytes() == policies[1].pair.tobytes()


def test_a_save_under_way_has_no_name_and_the_next_one_waits_for_it(tmp_path: Path, pace: Pace) -> None:
    pace.saves.update({0: 2, 1: 3})
    pace.lag = 0.3
    tester, done = run(tmp_path, steps=3, interval=1, save_seconds=1)
    done.assert_ok()
    assert events(tester)[:2] == ["step 1", "step 2"]
    assert [event for event in events(tester) if event.startswith("saved")] == ["saved 1 True", "saved 2 True", "saved 3 True"]
    folder = tester.folder / done.json["run"] / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-1", "step-2", "step-3"]
    assert done.json["checkpoint"].endswith("step-3")


def test_a_save_gets_its_name_soon_after_it_is_done_and_not_with_the_next_save(tmp_path: Path, pace: Pace) -> None:
    pace.updates[5] = 1
    pace.rest = 0.1  # the last word of the thread that wrote may come a moment after what it wrote
    tester, done = run(tmp_path, steps=8, interval=4, save_seconds=1)
    done.assert_ok()
    assert events(tester).index("step 4") < events(tester).index("saved 4 True") < events(tester).index("step 8")


def test_the_last_save_has_its_name_before_the_last_evaluation(tmp_path: Path, pace: Pace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The evaluation may take long, and a run that is killed in it must not lose what it trained."""
    pace.lag = 0.3
    names: list[list[str]] = []
    evaluate = TrainingRun._evaluate

    def looks(self: TrainingRun, step: int, *, wait: bool) -> None:
        names.append(sorted(path.name for path in tmp_path.rglob("checkpoints/step-*")))
        evaluate(self, step, wait=wait)

    monkeypatch.setattr(TrainingRun, "_evaluate", looks)
    _, done = run(tmp_path, interval=0, save_seconds=1)
    done.assert_ok()
    assert names == [[], ["step-4"]]


def test_an_interrupted_run_waits_for_its_last_save(tmp_path: Path) -> None:
    tester = RunTester(tmp_path).with_fakes()
    training = {"name": "fake", "train_batch_size": 3, "learning_rate": 0.1, "options": {"save_seconds": 0.5}}
    config = tester.fake_run(run={"num_episodes": 100, "max_steps": 150}, training=training)
    done = tester.interrupt("train", config, on=lambda line: line.startswith("step 2/"))
    assert done.exit_code == 130
    (latest,) = tester.folder.rglob("latest")
    saved = latest.parent / latest.read_text().strip()
    assert (saved / "trainer" / "fake_trainer.npz").exists()
    assert str(saved.relative_to(tester.folder)) in done.stdout
    assert not list(tester.folder.rglob("*.partial"))


def test_a_run_that_is_stopped_in_the_middle_of_a_save_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    update = FakeTraining.update

    def stopped(self: FakeTraining, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        if self.optimizer.steps == 2:
            raise KeyboardInterrupt
        return update(self, batch, objective)

    monkeypatch.setattr(FakeTraining, "update", stopped)
    tester, done = run(tmp_path, save_seconds=1)
    assert done.exit_code == 130
    (folder,) = tester.folder.rglob("checkpoints")
    assert not [thread for thread in threading.enumerate() if "fake-trainer-saves" in thread.name]
    assert not list(folder.iterdir())


def test_a_save_that_fails_beside_the_training_ends_the_run_with_a_sentence(tmp_path: Path) -> None:
    tester, done = run(tmp_path, "faulty", fault="save", save_seconds=0.01)
    assert done.exit_code == 1
    said = json.loads(done.stdout.splitlines()[-1])["error"] if done.stdout.strip() else done.stderr
    assert "the training backend FaultyTraining failed while saving into" in str(said)
    assert "No space left on device" in str(said)
    assert "nothing was saved yet" in str(said)
    assert "step 2" in events(tester)
    assert not [event for event in events(tester) if event.startswith("saved")]
    assert not list(tester.folder.rglob("step-2"))
    assert not list(tester.folder.rglob("*.partial"))
