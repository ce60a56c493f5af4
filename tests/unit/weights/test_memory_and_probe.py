"""In one process the newest snapshot is handed out; the probe refuses whoever serves something else."""

from __future__ import annotations

import numpy as np
import pytest

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import BUCKET_BYTES, Probe, Snapshot, Tensor, probe_tolerance
from rlcore.runtime.sampler_gap import mean_gap_tolerance
from rlcore.testing.weights import publish
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver


def test_the_newest_wins_and_is_offered_once() -> None:
    publisher = MemoryPublisher(BUCKET_BYTES)
    receiver = MemoryReceiver("p", publisher, lambda: None)
    assert receiver.newer_than(-1) is None
    publish(publisher, Snapshot.of(0, {}))
    publish(publisher, Snapshot.of(2, {}))
    newest = receiver.newer_than(0)
    assert newest is not None
    assert newest.version == 2
    assert receiver.newer_than(2) is None


def test_memory_is_used_again_once_it_was_released_and_never_before() -> None:
    publisher = MemoryPublisher(BUCKET_BYTES)
    receiver = MemoryReceiver("p", publisher, lambda: None)
    values = [Tensor(dtype="float32", shape=(40,), data=np.full(40, version, np.float32)) for version in range(6)]
    places = []
    for version in range(4):
        publish(publisher, Snapshot.of(version, {"a": values[version]}))
        got = receiver.newer_than(version - 1)
        assert got is not None
        places.append(got.tensors["a"].data.ctypes.data)
        receiver.release(version)
    assert len(set(places)) == 2
    kept = receiver.newer_than(2)  # released, so that it is not offered again
    assert kept is None
    publish(publisher, Snapshot.of(4, {"a": values[4]}))
    held = receiver.newer_than(3)
    assert held is not None
    for version in (5, 6, 7):
        publish(publisher, Snapshot.of(version, {"a": values[5]}))
    assert (held.tensors["a"].data == 4).all()


@pytest.mark.parametrize("version", [1, 2])
def test_versions_only_rise(version: int) -> None:
    publisher = MemoryPublisher(BUCKET_BYTES)
    publish(publisher, Snapshot.of(2, {}))
    with pytest.raises(WeightsError, match="must increase"):
        publish(publisher, Snapshot.of(version, {}))


def test_the_probe_passes_within_the_tolerance_and_names_version_and_producer_beyond() -> None:
    probe = Probe(token_ids=np.array([1, 2, 3]), logprobs=np.array([-1.0, -2.0], np.float32), tolerance=probe_tolerance("float32"))
    probe.check(np.array([-1.0, -2.0005], np.float32), version=4, producer="producer-0")
    for served in (np.array([-1.0, -2.1]), np.array([-1.0]), np.array([-1.0, np.nan])):
        with pytest.raises(WeightsError, match="producer-0 does not serve version 4"):
            probe.check(served.astype(np.float32), version=4, producer="producer-0")


def test_a_probe_of_another_length_is_refused_even_where_its_values_fit() -> None:
    probe = Probe(token_ids=np.array([1, 2, 3]), logprobs=np.array([-1.0, -1.0], np.float32), tolerance=1.0)
    for served in (np.array([-1.0]), np.array([-1.0, -1.0, -1.0]), np.array([[-1.0, -1.0]])):
        with pytest.raises(WeightsError, match="by inf nats"):
            probe.check(served.astype(np.float32), version=4, producer="producer-0")


# What rounding was seen to do, or must be allowed for (nats of one token; on average over many), and the smallest that a fault does: a
# temperature of 1 taken for 0.9 moves single tokens by 1.2 nats, a mask or position ids that are missing by more.
ROUNDING = {"float64": (1e-6, 1e-7), "float32": (2e-5, 1e-5), "float16": (0.05, 0.005), "bfloat16": (0.24, 0.02)}
FAULT = {"float64": (1e-3, 1e-3), "float32": (0.01, 0.01), "float16": (0.5, 0.1), "bfloat16": (1.2, 0.1)}


@pytest.mark.parametrize("dtype", ROUNDING)
def test_a_tolerance_lies_between_rounding_and_the_smallest_fault(dtype: str) -> None:
    for tolerance, rounding, fault in zip((probe_tolerance(dtype), mean_gap_tolerance(dtype)), ROUNDING[dtype], FAULT[dtype], strict=True):
        assert rounding < tolerance < fault


@pytest.mark.parametrize("dtype", ROUNDING)
def test_the_coarser_dtype_sets_both_tolerances_in_any_order(dtype: str) -> None:
    for tolerance in (probe_tolerance, mean_gap_tolerance):
        assert tolerance(dtype, "bfloat16") == tolerance("bfloat16", dtype) == tolerance("bfloat16") >= tolerance(dtype)
