"""A trainer that writes its checkpoints while it trains on: the run waits for each before the next one and at the end."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.batches import TrainBatch
from rlcore.contracts.interfaces import Objective
from rlcore.testing import FakePolicy, FakeTraining, RunOutcome, RunTester, fake_training

OBSERVER = """
from rlcore.api import hookimpl
rlcore_api = "1.0"
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


@pytest.fixture
def held_until_update(monkeypatch: pytest.MonkeyPatch) -> dict[int, int]:
    """{a save, by its number from 0: the updates that must have been made before it is written}; it fails after 20 s."""
    wanted: dict[int, int] = {}
    made, changed, saves = [0], threading.Condition(), [0]
    update = FakeTraining.update

    def counted(self: FakeTraining, batch: TrainBatch, objective: Objective) -> Mapping[str, float]:
        metrics = update(self, batch, objective)
        with changed:
            made[0] += 1
            changed.notify_all()
        return metrics

    def held(seconds: float, write: Any) -> None:
        number, saves[0] = saves[0] // 2, saves[0] + 1  # model, then state
        with changed:
            if not changed.wait_for(lambda: made[0] >= wanted.get(number, 0), 20):
                raise TimeoutError(f"save {number} waited for update {wanted[number]}, and {made[0]} were made")
        write()

    monkeypatch.setattr(FakeTraining, "update", counted)
    monkeypatch.setattr(fake_training, "_later", held)
    return wanted


def test_training_goes_on_while_a_save_is_written_and_the_weights_are_those_of_its_step(
    tmp_path: Path, held_until_update: dict[int, int]
) -> None:
    held_until_update[0] = 3
    late, done = run(tmp_path / "late", save_seconds=1)
    done.assert_ok()
    at_once, same = run(tmp_path / "once")
    same.assert_ok()
    assert events(at_once) == ["step 1", "step 2", "saved 2 True", "step 3", "step 4", "saved 4 True"]
    assert events(late).index("step 3") < events(late).index("saved 2 True") < events(late).index("saved 4 True")
    for step in (2, 4):
        policies = [
            FakePolicy.load(tester.folder / outcome.json["run"] / "checkpoints" / f"step-{step}" / "model")
            for tester, outcome in ((late, done), (at_once, same))
        ]
        assert policies[0].last.tobytes() == policies[1].last.tobytes()
        assert policies[0].pair.tobytes() == policies[1].pair.tobytes()


def test_a_save_under_way_has_no_name_and_the_next_one_waits_for_it(tmp_path: Path, held_until_update: dict[int, int]) -> None:
    held_until_update.update({0: 2, 1: 3})
    tester, done = run(tmp_path, steps=3, interval=1, save_seconds=1)
    done.assert_ok()
    assert events(tester)[:2] == ["step 1", "step 2"]
    assert [event for event in events(tester) if event.startswith("saved")] == ["saved 1 True", "saved 2 True", "saved 3 True"]
    folder = tester.folder / done.json["run"] / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["latest", "step-1", "step-2", "step-3"]
    assert done.json["checkpoint"].endswith("step-3")


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
