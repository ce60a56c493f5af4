"""The words of ``vllm_ipc`` and ``vllm_nccl`` over recorded ends: no vLLM, no GPU. ``tests/engine`` has vLLM's own worker."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_transfer import RecordedJoining, RecordedTransfer
from rlcore_plugin_serving.joined_transfer import FINISH, INIT, START, UPDATE
from rlcore_plugin_vllm import rlcore_register_weight_transfers
from rlcore_plugin_vllm.engine_transfers import VllmIpc, VllmNccl

from rlcore.api import ConfigError, InferenceContext, RunError, Snapshot, WeightsError
from rlcore.testing import EngineTransferSuite, FakeTokenizer, RunTester, write_fake_model
from rlcore.testing.phases import phases_in
from rlcore.testing.policy import FakePolicy
from rlcore.testing.transfers.engine_transfer_suite import JoiningProducer

TOKENIZER = FakeTokenizer("abc")
IDS = np.array([3, 5, 6, 7, 4], np.int32)


def policy(version: int) -> FakePolicy:
    return FakePolicy.random(len(TOKENIZER), version, 0.5)


def snapshot(version: int) -> Snapshot:
    return Snapshot.of(version, dict(policy(version).tensors()))


class TestWords(EngineTransferSuite):
    sequence = tuple(IDS.tolist())
    tolerance = 1e-6

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = write_fake_model(tmp_path / "model", "abc", scale=0.5)

    def make(self) -> RecordedTransfer:
        return RecordedTransfer()

    def make_engine(self) -> RecordedJoining:
        return RecordedJoining(InferenceContext(model=str(self.folder), tokenizer=TOKENIZER, prompts_per_forward=4, max_tokens=16))

    def snapshot(self, version: int) -> Snapshot:
        return snapshot(version)

    def scores(self, version: int) -> np.ndarray:
        return policy(version).logprobs(IDS).astype(np.float32)

    def test_ranks_of_engines_follow_each_other_and_vllm_is_asked_in_its_order(self) -> None:
        publisher = self.publisher()
        producers = [self.producer(publisher, name) for name in ("p0", "p1")]
        for version in (1, 2):
            self.publish(publisher, version)
            self.serves(version, *producers)
        workers = [producer.engine.worker for producer in producers]
        assert sorted(worker.first for worker in workers) == [1, 3]
        updates = len(self.snapshot(1).tensors)
        update = [START, *[UPDATE] * updates, FINISH, "compute_weight_checksums"]
        assert workers[0].calls[-len(update) :] == update
        assert workers[0].calls.count(INIT) <= 2  # of the first version each may have been alone

    def test_engines_that_hold_other_bytes_than_each_other_end_the_run(self) -> None:
        failures: list[WeightsError] = []
        publisher = self.publisher()
        publisher.on_failure = failures.append
        producers = [self.producer(publisher, name) for name in ("p0", "p1")]
        self.publish(publisher, 1)
        self.serves(1, *producers)
        producers[0].engine.worker.digest = "another"
        self.publish(publisher, 2)
        until = time.monotonic() + self.patience
        while not failures and time.monotonic() < until:
            time.sleep(0.01)
        assert "version 2: the engines do not hold the same weights: tensor 'last.weight' differs" in str(failures[0])

    def test_a_member_that_stands_still_is_named_and_the_others_go_on(self) -> None:
        transfer = RecordedTransfer()
        publisher = transfer.publisher(deadline=1.0, bucket_bytes=1 << 20)
        self._ends.append(publisher.close)
        dropped: list[str] = []
        publisher.on_drop = dropped.append
        self._transfer = transfer
        stuck, free = threading.Event(), self.producer(publisher, "free")
        stands = self.producer(publisher, "stands")
        self._ends.append(stuck.set)
        self.publish(publisher, 1)
        self.serves(1, stands, free)
        stands.engine.worker.call = lambda *_, **__: stuck.wait(30.0)
        stands.engine.joined._call = stands.engine.worker.call
        self.publish(publisher, 2)
        self.serves(2, free)
        assert len(dropped) == 1
        assert f"producer stands (process {os.getpid()}) stalled in the transfer of version 2 for 1 s" in dropped[0]

    def test_an_update_that_failed_in_a_worker_needs_a_new_engine(self) -> None:
        publisher = self.publisher()
        producer: JoiningProducer = self.producer(publisher)
        self.publish(publisher, 1)
        self.serves(1, producer)
        engine: Any = producer.engine
        engine.joined._call = _failing(engine.worker.call, UPDATE)
        self.publish(publisher, 2)
        until = time.monotonic() + self.patience
        while producer.failure is None and time.monotonic() < until:
            time.sleep(0.01)
        assert "vLLM's workers failed in update_weights: OSError: no memory" in str(producer.failure)
        with pytest.raises(RunError, match="only a new engine fixes"):
            engine.joined.leave()

    def test_what_is_not_received_is_not_finished(self) -> None:
        publisher = self.publisher()
        producer = self.producer(publisher)
        self.publish(publisher, 1)
        self.serves(1, producer)
        with pytest.raises(RunError, match="did not arrive completely"):
            producer.engine.joined.finish()


RECORDED = """
import recorded_transfer as r
from rlcore.api import InferenceBackendSpec, WeightTransferSpec, hookimpl
rlcore_api = "2.0"

@hookimpl
def rlcore_register_inference_backends():
    options, tokenizer = "rlcore.testing:FakeInferenceOptions", "rlcore.testing:load_fake_tokenizer"
    offered = r.RecordedJoining.capabilities
    return [InferenceBackendSpec(name="recorded-joining", target="recorded_transfer:RecordedJoining", config=options, tokenizer=tokenizer,
                                 summary="x", capabilities=offered)]

@hookimpl
def rlcore_register_weight_transfers():
    return [WeightTransferSpec(name="recorded", target="recorded_transfer:RecordedTransfer", summary="x", reach="host", way="vllm_nccl")]
"""


@pytest.mark.parametrize("flags", [("--placement", "colocated"), ("-i", "2")], ids=" ".join)
def test_a_run_of_processes_takes_its_weights_by_it(flags: tuple[str, ...], tmp_path: Path) -> None:
    phases = tmp_path / "phases.txt"
    tester = RunTester(tmp_path).with_fakes()
    tester.plugins.install("recorded", RECORDED)
    (tester.plugins.root / "recorded_transfer.py").write_text((Path(__file__).parent / "recorded_transfer.py").read_text())
    noted = {"options": {"phases": str(phases)}}
    training = {"name": "fake", "train_batch_size": 3, "learning_rate": 0.1, **noted}
    config = tester.fake_run(
        inference={"name": "recorded-joining", **noted},
        training=training,
        run={"runtime": "local", "max_steps": 2, "num_episodes": 4},
        eval={"eval_dataset": {"held": "train.jsonl"}, "eval_interval": 2},  # else the run does not wait for its last version
    )
    tester.run("train", config, "--json", "--max-staleness", "0", "--transport", "recorded", *flags).assert_ok()
    if "colocated" in flags:
        trained = ["engine sleeps at level 2", "trainer wakes", "trainer trains", "trainer sleeps"]
        served = ["engine wakes for weights", "engine takes weights", "engine wakes for its cache"]
        rounds = ["engine generates", *trained, *served] * 2
        assert phases_in(phases) == ["trainer sleeps", "engine takes weights", *rounds, "engine generates"]


def _failing(call: Any, method: str) -> Any:
    def failing(name: str, kwargs: Any = None) -> Any:
        if name == method:
            raise OSError("no memory")
        return call(name, kwargs)

    return failing


def test_without_a_gpu_both_are_refused_in_one_sentence(tmp_path: Path) -> None:
    specs = rlcore_register_weight_transfers()
    assert [(spec.name, spec.way, spec.reach, spec.preference) for spec in specs] == [
        ("vllm_ipc", "vllm_ipc", "host", -1),
        ("vllm_nccl", "vllm_nccl", "cluster", -1),
    ]
    if not list(Path("/dev").glob("nvidia[0-9]*")):
        assert {spec.unusable for spec in specs} == {"this machine has no NVIDIA GPU"}
        tester = RunTester(tmp_path, in_process=True).with_fakes()
        config = tester.fake_run(inference={"name": "vllm"}, run={"runtime": "local"})
        tester.run("train", config, "--transport", "vllm_nccl").assert_refused("because this machine has no NVIDIA GPU")


@pytest.mark.parametrize("transfer", [VllmIpc(), VllmNccl()], ids=lambda transfer: transfer.name)
def test_a_trainer_that_is_not_on_a_gpu_is_refused(transfer: Any) -> None:
    with pytest.raises(ConfigError, match=f"--transport {transfer.name} takes weights from a GPU, but the trainer is on cpu"):
        transfer.publisher(deadline=1.0, bucket_bytes=1)


@pytest.mark.parametrize(
    ("transport", "flags", "words"),
    [
        ("vllm_nccl", ("--placement", "colocated"), "--placement colocated shares one; type --transport vllm_ipc"),
        ("vllm_ipc", (), "--placement split uses several; type --transport vllm_nccl"),
        ("vllm_ipc", ("--placement", "colocated", "-i", "2"), "for one trainer and one engine on one device; type -i 1"),
    ],
)
def test_a_transfer_that_does_not_fit_the_placement_is_refused(
    transport: str, flags: tuple[str, ...], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "glob", lambda self, pattern, glob=Path.glob: [self] if pattern == "nvidia[0-9]*" else glob(self, pattern))
    tester = RunTester(tmp_path, in_process=True).with_fakes()
    config = tester.fake_run(inference={"name": "vllm", "device": "cuda"}, run={"runtime": "local"})
    tester.run("train", config, "--transport", transport, *flags).assert_refused(words)
