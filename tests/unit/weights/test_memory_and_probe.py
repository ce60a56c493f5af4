"""In one process the newest snapshot is handed out; the probe refuses whoever serves something else."""

from __future__ import annotations

import numpy as np
import pytest

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, probe_tolerance
from rlcore.runtime.training_run import mean_gap_tolerance
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver


def test_the_newest_wins_and_is_offered_once() -> None:
    publisher = MemoryPublisher()
    receiver = MemoryReceiver("p", publisher, lambda: None)
    assert receiver.newer_than(-1) is None
    publisher.publish(Snapshot.of(0, {}))
    publisher.publish(Snapshot.of(2, {}))
    newest = receiver.newer_than(0)
    assert newest is not None
    assert newest.version == 2
    assert receiver.newer_than(2) is None


@pytest.mark.parametrize("version", [1, 2])
def test_versions_only_rise(version: int) -> None:
    publisher = MemoryPublisher()
    publisher.publish(Snapshot.of(2, {}))
    with pytest.raises(WeightsError, match="must rise"):
        publisher.publish(Snapshot.of(version, {}))


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
