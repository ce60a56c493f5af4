"""Every transport between Ray actors: the same faults are found, receivers come and go, and whoever is waited for is named."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from signal import SIGKILL, SIGSTOP
from typing import Any

import numpy as np
import pytest

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import BUCKET_BYTES, Probe, Snapshot, Tensor
from rlcore.testing import FakePolicy, FakeTokenizer, write_fake_model
from rlcore.testing.transfers.transfer_suite import WrongSource
from rlcore.testing.weights import publish
from rlcore.weights.host_layout import HostLayout
from tests.integration.ray.small_cluster import short_folder

TRANSPORTS = ("shared", "object_store", "collective")
ACROSS_HOSTS = ("object_store", "collective")
SIZE = 12_000_000
# float32: three pieces of a broadcast, many chunks of shared memory.

pytestmark = pytest.mark.full


def weights(version: int, size: int = SIZE) -> Snapshot:
    """Two tensors that tell the version."""
    small, large = np.full(10, version, np.uint16), np.full(size, version, np.float32)
    probe = Probe(token_ids=np.array([1, 2], np.int32), logprobs=np.array([-1.0], np.float32), tolerance=0.5)
    tensors = {
        "small": Tensor(dtype="bfloat16", shape=small.shape, data=small),
        "large": Tensor(dtype="float32", shape=large.shape, data=large),
    }
    return Snapshot.of(version, tensors, probe)


AT_THE_TRAINER = {
    "dropped": "tensor 'large' of version 3, as the training backend publishes it, is in its manifest and was not published",
    "dtype": "tensor 'small' of version 3, as the training backend publishes it, is float16[10], its manifest says bfloat16[10]",
}
ON_THE_WAY = {
    "torn": "snapshot 3 arrived damaged: tensor 'large' does not have the checksum",
    "swapped": "does not have the checksum that was sent; it carries the data that was sent as",
}


def policy(version: int) -> FakePolicy:
    """What a trainer has after so many updates."""
    return FakePolicy.random(len(FakeTokenizer()), version, 0.5)


def served(version: int, *, tensors_of: int) -> Snapshot:
    """Weights that an engine can serve, whole and sealed, with the probe of their version; stale where the tensors are of another."""
    ids = np.array([5, 6, 7, 3], np.int32)
    probe = Probe(token_ids=ids, logprobs=policy(version).logprobs(ids).astype(np.float32), tolerance=1e-3)
    return Snapshot.of(version, dict(policy(tensors_of).tensors()), probe)


class Trainer:
    """An actor with a publisher."""

    def __init__(self, transport: str, deadline: float) -> None:
        from rlcore.registry.plugin_registry import Registry

        self.failed = threading.Event()
        self.said = ""
        self.publisher = (
            Registry.discover()
            .load("transfer", transport)()
            .publisher(deadline=deadline, bucket_bytes=BUCKET_BYTES, on_failure=self.failure)
        )

    def failure(self, error: WeightsError) -> None:
        self.said = str(error)
        self.failed.set()

    def address(self) -> Any:
        return self.publisher.address()

    def publish(self, version: int) -> None:
        publish(self.publisher, weights(version))

    def publish_odd(self, version: int, fault: str) -> str:
        """What a trainer with this fault is told."""
        tensors = dict(weights(version, 1000).tensors)
        odd = ("large", None) if fault == "dropped" else ("small", replace(tensors["small"], dtype="float16"))
        try:
            self.publisher.publish(version, WrongSource(tensors, *odd))
        except WeightsError as error:
            return str(error)
        return ""

    def publish_damaged(self, version: int, fault: str) -> None:
        """Damaged once its checksums are taken; this process does so to all that follows."""
        seal = HostLayout.seal

        def damaged(layout: HostLayout, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
            sealed = seal(layout, memory, places)
            if fault == "torn":
                memory[layout.offsets[1] + 2000 : layout.offsets[1] + 4000] ^= 1
            return sealed[::-1].copy() if fault == "swapped" else sealed

        HostLayout.seal = damaged  # type: ignore[method-assign]
        publish(self.publisher, weights(version, 1000))

    def publish_served(self, version: int, tensors_of: int) -> None:
        publish(self.publisher, served(version, tensors_of=tensors_of))

    def left(self, name: str) -> None:
        self.publisher.left(name)

    def failure_said(self) -> str:
        self.failed.wait(60.0)
        return self.said

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.publisher.close()
        self.publisher.close()


class Producer:
    """An actor with a receiver. ``stalls``: it reads the first piece of the first transfer and no more."""

    def __init__(self, transport: str, name: str, address: Any, deadline: float, stalls: bool = False) -> None:
        from rlcore.registry.plugin_registry import Registry

        self.stalled = threading.Event()
        if stalls:
            self.stall()
        self.news = threading.Event()
        transfer = Registry.discover().load("transfer", transport)()
        self.receiver = transfer.receiver(name=name, address=address, deadline=deadline, on_news=self.news.set)

    def stall(self) -> None:
        from rlcore_plugin_processes.shared_receiver import SharedReceiver

        def stand_still(*given: Any) -> Any:
            self.stalled.set()
            time.sleep(1000)

        SharedReceiver._verify = stand_still  # type: ignore[method-assign]
        with suppress(ImportError):
            from rlcore_plugin_ray import weights_collective

            broadcast = weights_collective._broadcast
            weights_collective._broadcast = lambda *given: stand_still() if given[1] else broadcast(*given)

    def until_stalled(self) -> int:
        self.stalled.wait(60.0)
        return os.getpid()

    def take(self, version: int, release: bool = True) -> str:
        """What is wrong with the next version from this one on, "" for nothing."""
        try:
            while (got := self.receiver.newer_than(version - 1)) is None:
                if not self.news.wait(60.0):
                    return "nothing came"
                self.news.clear()
        except WeightsError as error:
            return str(error)
        got.verify()
        wrong = [name for name, tensor in got.tensors.items() if not (tensor.data == got.version).all() or tensor.data.flags.writeable]
        assert got.probe is not None
        assert got.tensors["small"].dtype == "bfloat16"
        version = got.version
        del got
        if release:
            self.receiver.release(version)
        return ", ".join(wrong)

    def serve(self, model: str, version: int) -> str:
        """Have an engine serve this version; what is wrong with it, "" for nothing."""
        from rlcore.contracts.interfaces import InferenceContext
        from rlcore.roles.producer import Producer as Role
        from rlcore.roles.single_turn import SingleTurn
        from rlcore.schedule import TimeAccount
        from rlcore.testing import FakeInference

        context = InferenceContext(model=model, tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64)
        role = Role(self.receiver.name, FakeInference(context), FakeTokenizer(), None, TimeAccount(), SingleTurn())  # type: ignore[arg-type]
        while (got := self.receiver.newer_than(version - 1)) is None:
            if not self.news.wait(60.0):
                return "nothing came"
            self.news.clear()
        try:
            role.load(got)
        except WeightsError as error:
            return str(error)
        finally:
            del got
            self.receiver.release(version)
        return ""

    def pid(self) -> int:
        return os.getpid()

    def close(self) -> None:
        self.receiver.close()
        self.receiver.close()


@pytest.fixture(scope="module")
def ray() -> Iterator[Any]:
    """A Ray of this machine, and nothing of it afterwards."""
    import ray

    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # its workers cannot import a test
    options = {"include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    with short_folder() as folder:
        ray.init("local", _temp_dir=str(folder), num_cpus=2, object_store_memory=600_000_000, **options)
        try:
            yield ray
        finally:
            ray.shutdown()
            ray.cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


class Stage:
    """Makes the actors of a test, and ends them."""

    def __init__(self, ray: Any) -> None:
        self.ray = ray
        self.made: list[Any] = []

    def trainer(self, transport: str, deadline: float = 60.0) -> tuple[Any, Any]:
        made = self.ray.remote(Trainer).options(num_cpus=0, max_concurrency=4).remote(transport, deadline)
        self.made.append(made)
        return made, self.get(made.address.remote())

    def producer(self, transport: str, name: str, address: Any, deadline: float = 60.0, stalls: bool = False) -> Any:
        made = self.ray.remote(Producer).options(num_cpus=0, max_concurrency=4).remote(transport, name, address, deadline, stalls)
        self.made.append(made)
        self.get(made.pid.remote())
        return made

    def get(self, reference: Any) -> Any:
        return self.ray.get(reference, timeout=120)


@pytest.fixture
def stage(ray: Any) -> Iterator[Stage]:
    made = Stage(ray)
    yield made
    for actor in made.made:
        ray.kill(actor)


def end(pid: int, signal: int = SIGKILL) -> None:
    os.kill(pid, signal)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_receivers_come_late_go_and_come_again(stage: Stage, transport: str) -> None:
    trainer, address = stage.trainer(transport)
    first = stage.producer(transport, "p0", address)
    stage.get(trainer.publish.remote(0))
    assert stage.get(first.take.remote(0)) == ""
    second = stage.producer(transport, "p1", address)
    assert stage.get(second.take.remote(0)) == "", "a late one gets the newest"
    for version in (1, 2, 3):
        stage.get(trainer.publish.remote(version))
        assert stage.get([first.take.remote(version), second.take.remote(version)]) == ["", ""]
    stage.get(first.close.remote())
    stage.get(trainer.publish.remote(4))
    assert stage.get(second.take.remote(4)) == ""
    again = stage.producer(transport, "p0", address)
    assert stage.get(again.take.remote(4)) == ""
    stage.get([again.close.remote(), second.close.remote()])
    stage.get(trainer.close.remote())


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_versions_in_between_may_be_left_out_and_the_last_one_comes(stage: Stage, transport: str) -> None:
    trainer, address = stage.trainer(transport)
    producer = stage.producer(transport, "p0", address)
    for version in range(8):
        stage.get(trainer.publish.remote(version))
    assert stage.get(producer.take.remote(7)) == ""


@pytest.mark.parametrize("fault", AT_THE_TRAINER)
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_weights_that_are_not_as_announced_are_named_to_the_trainer(stage: Stage, transport: str, fault: str) -> None:
    trainer, _ = stage.trainer(transport)
    assert AT_THE_TRAINER[fault] in stage.get(trainer.publish_odd.remote(3, fault))


@pytest.mark.parametrize("fault", ["torn", pytest.param("swapped", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_damage_is_found_and_the_tensor_named(stage: Stage, transport: str, fault: str) -> None:
    trainer, address = stage.trainer(transport)
    producer = stage.producer(transport, "p7", address)
    stage.get(trainer.publish_damaged.remote(3, fault))
    said = stage.get(producer.take.remote(3))
    assert said.startswith("producer p7: ")
    assert ON_THE_WAY[fault] in said


def test_stale_weights_arrive_whole_through_the_object_store_and_are_found_by_the_probe(stage: Stage, tmp_path: Path) -> None:
    model = str(write_fake_model(tmp_path / "model"))
    trainer, address = stage.trainer("object_store")
    producer = stage.producer("object_store", "p7", address)
    stage.get(trainer.publish_served.remote(3, tensors_of=3))
    assert stage.get(producer.serve.remote(model, 3)) == ""
    stage.get(trainer.publish_served.remote(4, tensors_of=3))
    assert stage.get(producer.serve.remote(model, 4)).startswith("producer p7 does not serve version 4: its probe log probabilities differ")


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_producer_killed_in_the_middle_does_not_keep_the_others_waiting(stage: Stage, transport: str) -> None:
    # gloo tells a survivor of the death at once, or at the deadline, as the ranks happen to lie.
    trainer, address = stage.trainer(transport, deadline=10.0)
    victim = stage.producer(transport, "victim", address, deadline=10.0, stalls=True)
    other = stage.producer(transport, "p1", address, deadline=10.0)
    stage.get(trainer.publish.remote(0))
    # The object store has no middle: an object is there or not.
    end(stage.get((victim.pid if transport == "object_store" else victim.until_stalled).remote()))
    stage.get(trainer.left.remote("victim"))
    assert stage.get(other.take.remote(0)) == ""
    stage.get(trainer.publish.remote(1))
    assert stage.get(other.take.remote(1)) == ""


@pytest.mark.parametrize("when", ["in the middle", pytest.param("between transfers", marks=pytest.mark.nightly)])
def test_a_producer_that_stops_is_named_by_the_collective(stage: Stage, when: str) -> None:
    trainer, address = stage.trainer("collective", deadline=4.0)
    victim = stage.producer("collective", "victim", address, deadline=4.0, stalls=when == "in the middle")
    stage.producer("collective", "p1", address, deadline=60.0)
    if when == "between transfers":
        end(stage.get(victim.pid.remote()), SIGSTOP)
    stage.get(trainer.publish.remote(0))
    said = stage.get(trainer.failure_said.remote())
    assert "the trainer waited 4 s for producer victim in the transfer of version 0" in said


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_trainer_killed_between_transfers_leaves_what_it_sent(stage: Stage, transport: str) -> None:
    trainer, address = stage.trainer(transport)
    producer = stage.producer(transport, "p0", address)
    stage.get(trainer.publish.remote(0))
    assert stage.get(producer.take.remote(0, release=False)) == ""
    end(stage.get(trainer.pid.remote()))
    stage.get(producer.close.remote())


def test_a_trainer_killed_in_the_middle_is_named_by_the_collective(stage: Stage) -> None:
    # A survivor may wait for another survivor, which is no fault of gloo's to notice: the deadline is.
    trainer, address = stage.trainer("collective", deadline=8.0)
    stalls = stage.producer("collective", "p0", address, deadline=8.0, stalls=True)
    other = stage.producer("collective", "p1", address, deadline=8.0)
    waits = other.take.remote(0)
    stage.get(trainer.publish.remote(0))
    stage.get(stalls.until_stalled.remote())
    pid = stage.get(trainer.pid.remote())
    end(pid)
    said = stage.get(waits)
    assert said == "" or f"the trainer (process {pid} on" in said
    if said:
        assert "in the middle of version 0" in said


def test_nothing_of_weights_stays_in_the_file_system() -> None:
    assert [path for path in Path("/dev/shm").iterdir() if "rlcore-weights" in path.name] == []
