"""The channel hands out the newest; the probe refuses whoever serves something else."""

from __future__ import annotations

import numpy as np
import pytest

from rlcore.errors import WeightsError
from rlcore.snapshots import Probe, Snapshot
from rlcore.weights import LocalChannel, check_probe, probe_tolerance


def test_the_newest_wins_and_is_offered_once() -> None:
    channel = LocalChannel()
    assert channel.newer_than(-1) is None
    channel.publish(Snapshot.of(0, {}))
    channel.publish(Snapshot.of(2, {}))
    newest = channel.newer_than(0)
    assert newest is not None
    assert newest.version == 2
    assert channel.newer_than(2) is None


@pytest.mark.parametrize("version", [1, 2])
def test_versions_only_rise(version: int) -> None:
    channel = LocalChannel()
    channel.publish(Snapshot.of(2, {}))
    with pytest.raises(WeightsError, match="must rise"):
        channel.publish(Snapshot.of(version, {}))


def test_the_probe_passes_within_the_tolerance_and_names_version_and_producer_beyond() -> None:
    probe = Probe(token_ids=np.array([1, 2, 3]), logprobs=np.array([-1.0, -2.0], np.float32), tolerance=probe_tolerance("float32"))
    check_probe(probe, np.array([-1.0, -2.0005], np.float32), version=4, producer="producer-0")
    for served in (np.array([-1.0, -2.1]), np.array([-1.0]), np.array([-1.0, np.nan])):
        with pytest.raises(WeightsError, match="producer-0 does not serve version 4"):
            check_probe(probe, served.astype(np.float32), version=4, producer="producer-0")


def test_the_coarser_dtype_sets_the_tolerance() -> None:
    assert probe_tolerance("float32", "bfloat16") == probe_tolerance("bfloat16") > probe_tolerance("float32")
