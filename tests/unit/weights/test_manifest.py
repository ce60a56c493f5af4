"""Tensors as one run of bytes and back: any dtype and shape, any cut, and every damage is named."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kit_weights import tensor
from rlcore.weights.manifest import Follower, Manifest, write_tensors

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, Tensor
from rlcore.weights import manifest as module

SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=5)
DTYPES = st.sampled_from([("float32", np.float32), ("bfloat16", np.uint16), ("float16", np.float16), ("int8", np.int8)])


def written(snapshot: Snapshot) -> tuple[Manifest, np.ndarray, np.ndarray]:
    made = Manifest.from_bytes(Manifest.of(snapshot).to_bytes())
    flat, checksums = np.full(made.size, 255, np.uint8), np.zeros(len(made.sealed), np.uint64)
    for _ in write_tensors(snapshot, made, flat, checksums):
        pass
    return made, flat, checksums


@given(st.data(), SHAPES, st.booleans(), st.integers(1, 40))
def test_what_is_written_is_read_and_verified_in_any_cut(
    data: st.DataObject, shapes: list[tuple[int, ...]], late: bool, chunk: int
) -> None:
    tensors = {}
    for index, shape in enumerate(shapes):
        dtype, carrier = data.draw(DTYPES)
        values = np.arange(int(np.prod(shape)), dtype=np.int8).astype(carrier).reshape(shape)
        tensors[f"t{index}"] = Tensor(dtype=dtype, shape=shape, data=values)
    sent = (Snapshot.sealed_late if late else Snapshot.of)(3, tensors)
    with mock.patch.object(module, "CHUNK", chunk):
        made, flat, checksums = written(sent)
    follower = Follower(made, flat)
    for reached in sorted(data.draw(st.lists(st.integers(0, max(made.size, 1)), max_size=6))):
        follower.follow(reached)
    got = follower.whole(checksums)
    assert got.version == 3
    assert dict(got.checksums) == {name: one.checksum for name, one in tensors.items()}
    for name, one in tensors.items():
        mine = got.tensors[name]
        assert (mine.dtype, mine.shape, mine.data.dtype, mine.data.shape) == (one.dtype, one.shape, one.data.dtype, one.data.shape)
        assert np.array_equal(mine.data, one.data)
        assert not mine.data.flags.writeable


def test_progress_is_told_as_the_bytes_are_in_place() -> None:
    sent = Snapshot.sealed_late(0, {"a": tensor(np.full(100, 7, np.uint8), "uint8"), "b": tensor(np.full(30, 7, np.uint8), "uint8")})
    made = Manifest.of(sent)
    flat = np.zeros(made.size, np.uint8)
    with mock.patch.object(module, "CHUNK", 40):
        told = [(reached, int((flat[:reached] == 7).sum())) for reached in write_tensors(sent, made, flat, np.zeros(2, np.uint64))]
    assert told == [(40, 40), (80, 80), (158, 130)]  # the second tensor begins at 128


def test_the_probe_travels_bit_for_bit() -> None:
    probe = Probe(token_ids=np.array([3, 1, 2], np.int32), logprobs=np.array([-0.1, -1e-30], np.float32), tolerance=0.3)
    got = Manifest.from_bytes(Manifest.of(Snapshot.of(1, {}, probe)).to_bytes()).probe
    assert got is not None
    assert got.tolerance == 0.3
    for mine, sent in ((got.token_ids, probe.token_ids), (got.logprobs, probe.logprobs)):
        assert mine.dtype == sent.dtype
        assert np.array_equal(mine, sent)


def test_checksums_that_the_snapshot_brings_are_sent_and_not_taken_again() -> None:
    values = np.arange(1000, dtype=np.float32)
    sent = Snapshot.of(1, {"a": tensor(np.zeros(3, np.float32)), "b": tensor(values)})
    values[500:] = 0.0  # torn: the second half is of another version
    made, flat, checksums = written(sent)
    with pytest.raises(WeightsError, match=r"snapshot 1 arrived damaged: tensor 'b'"):
        Follower(made, flat).whole(checksums)


def test_a_byte_that_changes_on_the_way_is_noticed_with_late_checksums_too() -> None:
    made, flat, checksums = written(Snapshot.sealed_late(1, {"a": tensor(np.ones(50, np.float32)), "b": tensor(np.ones(50, np.float32))}))
    flat[made.places[1].offset + 9] ^= 1
    with pytest.raises(WeightsError, match="tensor 'b' has another checksum"):
        Follower(made, flat).whole(checksums)


def test_a_record_whose_shape_does_not_fit_its_bytes_arrives_as_it_is() -> None:
    made, flat, checksums = written(Snapshot.of(1, {"a": Tensor(dtype="float32", shape=(2, 3), data=np.ones(5, np.float32))}))
    got = Follower(made, flat).whole(checksums)
    assert got.tensors["a"].shape == (2, 3)
    assert got.tensors["a"].data.shape == (5,)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"version": 1}', b'{"version": 1, "places": [[1]], "sealed": [], "probe": null, "size": 0}']
)
def test_what_is_no_manifest_is_refused(text: bytes) -> None:
    with pytest.raises(WeightsError, match="list of tensors"):
        Manifest.from_bytes(text)


def test_the_follower_says_where_it_is() -> None:
    made, flat, checksums = written(Snapshot.of(1, {"a": tensor(np.ones(500_000, np.float32)), "b": tensor(np.ones(500_000, np.float32))}))
    follower = Follower(made, flat)
    follower.follow(2_500_000)
    assert follower.where() == "tensor 'b', 2.5 of 4.0 MB"
    follower.whole(checksums)
    assert follower.where() == "the end, 4.0 of 4.0 MB"
