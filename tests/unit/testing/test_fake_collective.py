"""The transfer that engines join: with an engine of two processes it keeps the rules, and whoever is lost ends one group, not the run."""

from __future__ import annotations

import signal
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from suites_of_fakes import CHARACTERS, FakeCollectiveSuite, drawn_policy
from zoo_updates import JoinsByItself

from rlcore.contracts.errors import GroupBrokenError, RunError, WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import BUCKET_BYTES, Bucket, Snapshot
from rlcore.testing import FakeTokenizer, update_engine, write_fake_model
from rlcore.testing.inference.fake_tensor_parallel import FakeJoining, FakeTensorParallelOptions
from rlcore.testing.transfers.fake_collective import FakeCollectivePublisher, FakeCollectiveReceiver, _Joined
from rlcore.testing.transfers.fake_group_rank import FakeGroupRank
from rlcore.testing.weights import mis_sealing, publish

SEQUENCE = np.array([3, 5, 6, 7, 4], np.int32)


def weights(version: int) -> Snapshot:
    return Snapshot.of(version, dict(drawn_policy(version).tensors()))


def context(model: Path, workers: int = 2) -> InferenceContext:
    return InferenceContext(
        model=str(model), tokenizer=FakeTokenizer(CHARACTERS), prompts_per_forward=4, max_tokens=16, tensor_parallel=workers
    )


class TestEngineThatJoinsByItself(FakeCollectiveSuite):
    engine = JoinsByItself


@pytest.mark.full
class TestEngineOfTwoProcesses(FakeCollectiveSuite):
    engine = FakeJoining


class Ends:
    """A publisher with a short deadline, and engines in threads."""

    def __init__(self, model: Path, deadline: float) -> None:
        self.suite = FakeCollectiveSuite()
        self.suite.setup_method()
        self.publisher = FakeCollectivePublisher(deadline, bucket_bytes=1)
        self.suite._ends.append(self.publisher.close)
        self.drops: list[str] = []
        self.publisher.on_drop = self.drops.append
        self.model = model

    def producer(self, name: str, engine: Any = None) -> Any:
        made = engine or FakeJoining(context(self.model))
        self.suite._ends.append(made.close)
        return self.suite.producer(self.publisher, name, engine=made)


@pytest.fixture
def ends(tmp_path: Path) -> Iterator[Ends]:
    made = Ends(write_fake_model(tmp_path / "model", CHARACTERS, seed=0, scale=0.5), 1.0)
    yield made
    made.suite.teardown_method()


def test_a_group_that_breaks_while_its_members_are_told_of_it_is_built_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one that hears of it says at once that it broke, which closes the group; the second one has not been told yet."""
    suite = FakeCollectiveSuite()
    suite.engine, suite.patience = JoinsByItself, 20.0
    suite.setup_method()
    publisher = suite.publisher()
    producers = [suite.producer(publisher, name) for name in ("first", "second")]
    tell, broken = _Joined.tell, list[int]()

    def tell_and_break(self: _Joined, *word: Any) -> None:
        tell(self, *word)
        if word[0] == "go" and not broken and self is not publisher._group.members[-1]:
            broken.append(publisher._group.epoch)
            publisher._group.close()

    monkeypatch.setattr(_Joined, "tell", tell_and_break)
    try:
        for version in (1, 2):  # of the first one each may be alone
            suite.publish(publisher, version)
            suite.serves(version, *producers)
    finally:
        suite.teardown_method()
    assert broken


def test_a_worker_that_is_killed_ends_the_group_and_the_others_get_the_version_in_a_new_one(ends: Ends, tmp_path: Path) -> None:
    kill = tmp_path / "kill"
    lost = ends.producer("lost", FakeJoining(context(ends.model), FakeTensorParallelOptions(kill_file=str(kill))))
    stays = ends.producer("stays")
    for version in (0, 1):
        publish(ends.publisher, weights(version))
        ends.suite.serves(version, lost, stays)
    kill.touch()
    publish(ends.publisher, weights(2))
    until = time.monotonic() + 30
    while lost.failure is None and time.monotonic() < until:
        time.sleep(0.01)
    assert isinstance(lost.failure, RunError)
    assert "worker 1 of 2 of the fake engine died with exit code -9" in str(lost.failure)
    with pytest.raises(RunError, match="its weights are torn"):
        lost.engine.score(SEQUENCE)
    lost.receiver.close()  # as the end of its process does
    ends.suite.serves(2, stays)
    version, epoch = stays.took[-1]
    assert version == 2
    assert epoch > stays.took[1][1]  # it may also have begun in the group that broke, of the epoch of version 1
    replacement = ends.producer("lost.1")
    ends.suite.serves(2, replacement)


def test_a_worker_that_is_stopped_is_dropped_at_the_deadline(ends: Ends) -> None:
    stopped, stays = ends.producer("stopped"), ends.producer("stays")
    for version in (0, 1):
        publish(ends.publisher, weights(version))
        ends.suite.serves(version, stopped, stays)
    worker = stopped.engine.workers[1].process
    worker.send_signal(signal.SIGSTOP)
    try:
        publish(ends.publisher, weights(2))
        ends.suite.serves(2, stays)
        (said,) = ends.drops
        assert said.startswith("producer stopped (process ")
        assert " took nothing in the transfer of version 2 for 1 s, so it was ended; look whether" in said
        assert stays.took[-1][1] > stays.took[1][1]
    finally:
        worker.send_signal(signal.SIGKILL)


def test_damage_is_found_by_the_worker_and_the_tensor_named(ends: Ends) -> None:
    producer = ends.producer("p0")
    with mis_sealing("pair.weight"):
        publish(ends.publisher, weights(1))
        until = time.monotonic() + 30
        while producer.failure is None and time.monotonic() < until:
            time.sleep(0.01)
    assert isinstance(producer.failure, WeightsError)
    assert "snapshot 1 arrived damaged: tensor 'pair.weight' does not have the checksum" in str(producer.failure)


def test_an_engine_that_has_not_joined_takes_no_bucket(tmp_path: Path) -> None:
    engine = FakeJoining(context(write_fake_model(tmp_path / "model", CHARACTERS, seed=0, scale=0.5)))
    try:
        manifest = weights(1).manifest()
        engine.begin_update(1, manifest, engine.capabilities.in_flight)
        said = [(info.name, info.dtype, info.shape, 0) for info in manifest.tensors]
        with pytest.raises(WeightsError, match="no group of the weights has been joined: call connect first"):
            engine.receive(Bucket(version=1, index=0, info={"tensors": said}, epoch=1))
    finally:
        engine.close()


def test_a_group_that_is_gone_is_said_to_be_broken() -> None:
    publisher = FakeCollectivePublisher(1.0, BUCKET_BYTES)
    receiver = FakeCollectiveReceiver("p0", publisher.address(), lambda: None)
    receiver.introduce({"ranks": 1})
    publish(publisher, weights(1))
    until, got = time.monotonic() + 30, None
    while got is None and time.monotonic() < until:
        got = receiver.newer_than(-1)
    assert got is not None
    publisher.close()
    with pytest.raises(GroupBrokenError, match="the group of the weights"):
        FakeGroupRank(got.info, 0)
    receiver.close()


def test_nothing_is_left_of_closed_ends() -> None:
    before = {thread.name for thread in threading.enumerate()}
    publisher = FakeCollectivePublisher(1.0, BUCKET_BYTES)
    receiver = FakeCollectiveReceiver("p0", publisher.address(), lambda: None)
    receiver.introduce({"ranks": 1})
    publish(publisher, weights(1))
    receiver.close()
    publisher.close()
    until = time.monotonic() + 10
    while (left := {thread.name for thread in threading.enumerate()} - before) and time.monotonic() < until:
        time.sleep(0.01)
    assert not left


def test_without_the_trainer_there_is_no_receiver() -> None:
    publisher = FakeCollectivePublisher(1.0, BUCKET_BYTES)
    address = publisher.address()
    publisher.close()
    with pytest.raises(WeightsError, match="producer p0 cannot reach the trainer"):
        FakeCollectiveReceiver("p0", address, lambda: None)


def test_the_two_processes_of_an_engine_have_the_weights_that_came(ends: Ends) -> None:
    producer = ends.producer("p0")
    by_host = FakeJoining(context(ends.model))
    ends.suite._ends.append(by_host.close)
    publish(ends.publisher, weights(3))
    ends.suite.serves(3, producer)
    update_engine(by_host, weights(3))
    assert np.array_equal(producer.score(SEQUENCE), by_host.score(SEQUENCE))


def test_somebody_who_says_nothing_keeps_no_producer_out(ends: Ends) -> None:
    """Neither from the words nor, as a rank, from the group."""
    (host, port), _ = ends.publisher.address()
    with socket.create_connection((host, port)):
        producer = ends.producer("p0", JoinsByItself(context(ends.model)))
        publish(ends.publisher, weights(0))
        ends.suite.serves(0, producer)
    silent = list[socket.socket]()
    engine = JoinsByItself(context(ends.model))
    connect = engine.connect

    def behind_a_silent_one(info: Any, epoch: int) -> None:
        silent.append(socket.create_connection(info["address"]))
        connect(info, epoch)

    engine.connect = behind_a_silent_one  # type: ignore[method-assign]
    late = ends.producer("p1", engine)
    ends.suite.serves(0, late)
    assert len(late.took) == 1
    assert not ends.drops
    silent[0].close()


def test_a_producer_that_never_serves_what_it_took_is_dropped(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeCollectiveReceiver, "release", lambda self, version: None)
    ends.producer("p0", JoinsByItself(context(ends.model)))
    publish(ends.publisher, weights(0))
    until = time.monotonic() + 30
    while not ends.drops and time.monotonic() < until:
        time.sleep(0.01)
    assert "has taken version 0 and not said that it serves it for 1 s, so it was ended" in ends.drops[0]
