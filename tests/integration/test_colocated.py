"""``--placement colocated``: generation and training take turns, and what comes out is that of split placement, bit for bit."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rlcore_plugin_tools.run_record import RunRecord

import rlcore
from rlcore.contracts.snapshots import WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.runtime import Summary
from rlcore.testing import FakeInference, FakeTraining, RunOutcome, RunTester
from rlcore.testing.phases import phases_in
from tests.quickstart_folder import quickstart_in

TRAINING = {"name": "fake", "train_batch_size": 3, "learning_rate": 0.1}

SLEEPLESS = """
from rlcore.api import InferenceBackendSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_inference_backends():
    target, tokenizer = "sleepless_engine:Sleepless", "rlcore.testing:load_fake_tokenizer"
    return [InferenceBackendSpec(name="sleepless", target=target, tokenizer=tokenizer, summary="Keeps its device.")]
"""
ENGINE = """
from dataclasses import replace
from rlcore.testing import FakeInference

class Sleepless(FakeInference):
    capabilities = replace(FakeInference.capabilities, sleeps=False)
"""


@pytest.fixture
def turns(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What engine and trainer are asked, in order."""
    asked: list[str] = []

    def noted(owner: type, name: str, say: Any) -> None:
        original = getattr(owner, name)

        def replaced(self: Any, *args: Any) -> Any:
            asked.append(say(*args))
            return original(self, *args)

        monkeypatch.setattr(owner, name, replaced)

    noted(FakeInference, "sleep", lambda level: "sleep")
    noted(FakeInference, "wake", lambda: "wake")
    noted(FakeInference, "begin_update", lambda version, *_: f"take {version}")
    noted(FakeInference, "submit", lambda requests: "generate")
    noted(FakeTraining, "update", lambda *args: "train")
    return asked


def run(tmp_path: Path, *flags: str, **sections: Any) -> tuple[RunTester, RunOutcome]:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    return tester, tester.run("train", tester.fake_run(**sections), "--json", *flags).assert_ok()


def result(tester: RunTester, done: RunOutcome) -> tuple[bytes, list[dict[str, Any]]]:
    """The policy, and every figure that is no time."""
    lines = (tester.folder / done.json["run"] / "metrics.jsonl").read_text().splitlines()
    figures = [{key: value for key, value in json.loads(line).items() if not _is_time(key)} for line in lines]
    return (tester.folder / done.json["checkpoint"] / "model" / "fake_policy.npz").read_bytes(), figures


def _is_time(key: str) -> bool:
    return any(word in key for word in ("second", "time", "latency", "share", "busy", "idle", "bubble", "tokens_per", "reward/p"))


def test_engine_and_trainer_take_turns(tmp_path: Path, turns: list[str]) -> None:
    run(tmp_path, "--placement", "colocated", "--max-steps", "2")
    in_order = [word for place, word in enumerate(turns) if word != "generate" or turns[place - 1] != "generate"]
    assert in_order == [
        *["take 0", "generate", "sleep", "train"],
        *["wake", "take 1", "generate", "sleep", "train"],
        *["wake", "take 2"],
    ]


def test_on_one_device_the_trainer_sleeps_first_and_weights_wake_before_the_cache(tmp_path: Path) -> None:
    phases = {"options": {"phases": str(tmp_path / "phases.txt")}}
    run(
        tmp_path,
        "--placement",
        "colocated",
        inference={"name": "fake", **phases},
        training={**TRAINING, **phases},
        log={"save_interval": 1},
    )
    trained = ["engine sleeps at level 1", "trainer wakes", "trainer trains", "trainer sleeps"]
    served = ["engine wakes for weights", "engine takes weights", "engine wakes for its cache"]
    assert phases_in(tmp_path / "phases.txt") == [
        *["trainer sleeps", "engine takes weights"],  # the engine was made after the trainer, and has slept never
        *["engine generates", *trained, *served],
        *["engine generates", *trained, *served],
        *["engine generates", *trained],
        *served,
    ]


def test_where_devices_are_apart_nobody_sleeps(tmp_path: Path) -> None:
    phases = {"options": {"phases": str(tmp_path / "phases.txt")}}
    run(tmp_path, inference={"name": "fake", **phases}, training={**TRAINING, **phases})
    assert set(phases_in(tmp_path / "phases.txt")) == {"engine takes weights", "engine generates", "trainer trains"}


def test_an_evaluation_wakes_the_engine_before_the_next_batch(tmp_path: Path, turns: list[str]) -> None:
    held_out = {"eval_dataset": {"say": str(tmp_path / "train.jsonl")}, "eval_interval": 1}
    run(tmp_path, "--placement", "colocated", "--max-steps", "2", eval=held_out)
    assert turns.count("sleep") == turns.count("train") == 2
    assert turns.count("wake") == 2
    asleep = False
    for word in turns:
        asleep = (asleep or word == "sleep") and word != "wake"
        assert (word == "train") <= asleep, "the engine held the device while the trainer trained"
        assert not (asleep and word in ("generate", "take 1", "take 2"))


def test_the_result_is_that_of_split_placement_bit_for_bit(tmp_path: Path, turns: list[str]) -> None:
    held_out = {"eval_dataset": {"say": str(tmp_path / "split" / "train.jsonl")}, "eval_interval": 1}
    split = result(*run(tmp_path / "split", eval=held_out))
    assert "sleep" not in turns
    assert result(*run(tmp_path / "colocated", "--placement", "colocated", eval=held_out)) == split
    assert turns.count("sleep") == 3


def test_dynamic_batching_sleeps_once_an_update(tmp_path: Path, turns: list[str]) -> None:
    algorithm = {"filter_range": [0.01, 0.99], "dynamic_batching": True}
    _, done = run(tmp_path, "--placement", "colocated", run={"num_episodes": 8, "max_steps": 4}, algorithm=algorithm)
    assert turns.count("sleep") == done.json["steps"] == 4


def test_the_seconds_of_sleep_and_wake_are_booked_to_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("sleep", "wake"):
        original = getattr(FakeInference, name)
        monkeypatch.setattr(FakeInference, name, lambda self, *level, original=original: (time.sleep(0.02), original(self, *level)))
    _, done = run(tmp_path, "--placement", "colocated")
    assert done.json["time"]["producer/weights"] >= 0.02 * (2 * done.json["steps"] - 1)  # it is not woken after the last update


def test_an_engine_that_never_sleeps_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    tester.plugins.install("sleepless", SLEEPLESS)
    (tester.plugins.root / "sleepless_engine.py").write_text(ENGINE)
    config = tester.fake_run(inference={"name": "sleepless"})
    tester.run("train", config, "--placement", "colocated").assert_refused("inference backend sleepless never gives its device back")
    tester.run("train", config, "--json").assert_ok()


# --- the real engine and the real trainer ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return quickstart_in(tmp_path_factory.mktemp("project") / "qs", tmp_path_factory, train=256)


def trained(folder: Path, **overrides: Any) -> tuple[Summary, dict[str, np.ndarray], str]:
    """The summary, the weights of its checkpoint, and the rollouts of its last update."""
    from safetensors.numpy import load_file

    paths = {"run_dir": str(folder / "runs"), "model": str(folder / "base"), "dataset": str(folder / "train.jsonl")}
    short = {"max_steps": 3, "rollout_interval": 3, "eval_dataset": {}, "eval_interval": 0, "max_staleness": 0}
    summary = rlcore.train(folder / "run.toml", **{**short, **paths, **overrides})
    assert summary.checkpoint is not None
    weights = load_file(summary.checkpoint / "model" / "model.safetensors")
    return summary, weights, list(RunRecord(summary.run).rollouts(3))


@pytest.mark.full
def test_the_transformers_engine_gives_its_weights_back_and_the_run_is_the_same_to_the_bit(
    quickstart: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rlcore_plugin_transformers.engine import TransformersBackend

    bytes_asleep: list[int] = []
    sleep, update = TransformersBackend.sleep, TransformersBackend.begin_update
    versions: list[int] = []

    def measured(self: TransformersBackend, level: int) -> None:
        sleep(self, level)
        bytes_asleep.append(sum(parameter.untyped_storage().nbytes() for parameter in self._model.parameters()))

    def noted(self: TransformersBackend, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        versions.append(version)
        update(self, version, manifest, in_flight)

    monkeypatch.setattr(TransformersBackend, "sleep", measured)
    monkeypatch.setattr(TransformersBackend, "begin_update", noted)
    split, split_weights, split_rollouts = trained(quickstart)
    assert not bytes_asleep
    colocated, weights, rollouts = trained(quickstart, placement="colocated")
    assert bytes_asleep == [0, 0, 0]
    assert versions == [0, 1, 2, 3] * 2
    assert weights.keys() == split_weights.keys()
    assert all(np.array_equal(weights[name], tensor) for name, tensor in split_weights.items())
    assert rollouts == split_rollouts
    assert colocated.reward_last == split.reward_last
