"""Versions that are an adapter or a delta: from a source through each transfer into an engine, which serves what numpy computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from rlcore_plugin_processes.shared import SharedTransfer

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.interfaces import InferenceContext
from rlcore.contracts.snapshots import BUCKET_BYTES, Snapshot, WeightsKind, WeightSource
from rlcore.contracts.weight_transfer import Publisher, Receiver, WeightTransfer
from rlcore.roles.engine_update import update_engine
from rlcore.testing import FakeInference, FakePolicy, FakeTokenizer, HostSource, write_fake_model
from rlcore.testing.inference.fake_tensor_parallel import FakeTensorParallel
from rlcore.testing.weights import adapter_source, delta_source
from rlcore.weights.memory import MemoryTransfer

IDS = np.array([3, 5, 4, 7, 4, 9, 3], np.int32)
SIZE = len(FakeTokenizer())
SHAPES = {"last.weight": (SIZE, SIZE), "pair.weight": ((SIZE + 1) * SIZE, SIZE)}


@pytest.fixture
def engine(tmp_path: Path) -> FakeInference:
    model = write_fake_model(tmp_path / "model")
    return FakeInference(InferenceContext(model=str(model), tokenizer=FakeTokenizer(), prompts_per_forward=2, max_tokens=64))


class Way:
    """Both ends of a transfer."""

    def __init__(self, transfer: WeightTransfer) -> None:
        self.publisher: Publisher = transfer.publisher(deadline=20.0, bucket_bytes=1 << 14)
        self.receiver: Receiver = transfer.receiver(name="p", address=self.publisher.address(), deadline=20.0, on_news=lambda: None)
        self.version = -1

    def __call__(self, source: WeightSource) -> Snapshot:
        self.publisher.publish(self.version + 1, source)
        end = time.monotonic() + 20
        while (arrived := self.receiver.newer_than(self.version)) is None:
            assert time.monotonic() < end
            time.sleep(0.01)
        self.version = arrived.version
        copied = {name: replace(tensor, data=tensor.data.copy()) for name, tensor in arrived.tensors.items()}
        self.receiver.release(self.version)
        return replace(arrived, tensors=copied)

    def close(self) -> None:
        self.receiver.close()
        self.publisher.close()


@pytest.fixture(params=[MemoryTransfer, SharedTransfer])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    made = Way(request.param())
    yield made
    made.close()


def whole(seed: int) -> HostSource:
    return HostSource(dict(FakePolicy.random(SIZE, seed).tensors()))


def with_adapter(seed: int, source: HostSource) -> np.ndarray:
    arrays = {name: tensor.data.astype(np.float64) for name, tensor in source.tensors.items()}
    base = FakePolicy.random(SIZE, seed).arrays()
    return FakePolicy(*(base[name] + arrays[f"{name}.lora_B"] @ arrays[f"{name}.lora_A"] for name in SHAPES)).logprobs(IDS)


def test_an_adapter_is_served_over_the_whole_weights_that_came_last(engine: FakeInference, way: Way) -> None:
    for source in (whole(1), whole(2)):
        update_engine(engine, way(source))
    for seed in (0, 1):  # the second takes the place of the first
        adapter = adapter_source(SHAPES, rank=3, seed=seed)
        assert update_engine(engine, way(adapter)) == way.version
        np.testing.assert_allclose(engine.score(IDS), with_adapter(2, adapter), atol=1e-4)


def test_a_delta_is_added_to_the_version_that_it_names(engine: FakeInference, way: Way) -> None:
    steps = [whole(seed).tensors for seed in (1, 2, 3)]
    update_engine(engine, way(whole(1)))
    for before, after, seed in ((steps[0], steps[1], 2), (steps[1], steps[2], 3)):
        arrived = way(delta_source(before, after, way.version))
        assert arrived.kind is WeightsKind.DELTA
        update_engine(engine, arrived)
        np.testing.assert_allclose(engine.score(IDS), FakePolicy.random(SIZE, seed).logprobs(IDS), atol=1e-5)


def test_a_delta_of_another_version_is_refused_and_the_old_weights_are_served(engine: FakeInference, way: Way) -> None:
    update_engine(engine, way(whole(1)))
    update_engine(engine, way(whole(2)))
    with pytest.raises(WeightsError, match="version 2 is a delta of version 0, and the engine serves 1"):
        update_engine(engine, way(delta_source(whole(1).tensors, whole(3).tensors, 0)))
    np.testing.assert_allclose(engine.score(IDS), FakePolicy.random(SIZE, 2).logprobs(IDS), atol=1e-5)


@pytest.mark.parametrize("make", [lambda: adapter_source(SHAPES, rank=2), lambda: delta_source(whole(1).tensors, whole(2).tensors, 0)])
def test_level_1_keeps_what_an_adapter_or_a_delta_goes_over_and_level_2_does_not(
    engine: FakeInference, make: Callable[[], HostSource]
) -> None:
    def taken(version: int, source: HostSource) -> int:
        checksums, manifest = {name: tensor.checksum for name, tensor in source.tensors.items()}, source.manifest()
        return update_engine(
            engine,
            Snapshot(version=version, tensors=source.tensors, checksums=checksums, kind=manifest.kind, extra=manifest.extra),
        )

    for level in (1, 2):
        taken(0, whole(1))
        engine.sleep(level)
        engine.wake()
        if level == 1:
            assert taken(1, make()) == 1
            engine.score(IDS)
        else:
            with pytest.raises(WeightsError, match="and the engine holds no whole weights"):
                taken(1, make())
            assert taken(2, whole(2)) == 2


@pytest.mark.parametrize("kind", [WeightsKind.ADAPTER, WeightsKind.DELTA])
def test_an_engine_that_takes_whole_weights_alone_refuses_the_others_by_name(kind: WeightsKind) -> None:
    class Never(FakeTensorParallel):
        def __init__(self) -> None:
            """Nothing of it is asked."""

        def begin_update(self, *args: object) -> None:
            raise AssertionError("the update began")

    snapshot = Snapshot(version=4, tensors={}, checksums={}, kind=kind)
    with pytest.raises(WeightsError, match=rf"version 4 is of kind {kind}, and Never accepts full \(capabilities\.kinds\)"):
        update_engine(Never(), snapshot, BUCKET_BYTES)
