"""A version in the memory of a host: any dtype, shape and cut goes in and comes out, and every damage is named."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, Tensor, WeightsKind, WeightsManifest, cut_into_buckets
from rlcore.testing.weights import HostSource
from rlcore.weights.host_layout import HostLayout

SHAPES = st.lists(st.lists(st.integers(0, 5), max_size=3).map(tuple), max_size=5)
DTYPES = st.sampled_from([("float32", np.float32), ("bfloat16", np.uint16), ("float16", np.float16), ("float8_e4m3fn", np.uint8)])


def tensor(values: np.ndarray, dtype: str = "float32") -> Tensor:
    """A tensor of an array as it is."""
    return Tensor(dtype=dtype, shape=values.shape, data=values)


def written(source: HostSource, bucket_bytes: int = 100) -> tuple[HostLayout, np.ndarray, np.ndarray]:
    """A layout that has crossed a wire, the memory that it describes, and the checksums."""
    layout = HostLayout(version=3, manifest=source.manifest(), probe=None)
    memory = np.full(layout.size, 255, np.uint8)
    layout.fill(source, memory, bucket_bytes)
    return HostLayout.from_bytes(layout.to_bytes()), memory, layout.seal(memory, range(len(layout.offsets)))


@given(st.data(), SHAPES, st.integers(1, 200), st.integers(1, 200))
def test_what_goes_in_comes_out_verified_in_any_cut(data: st.DataObject, shapes: list[tuple[int, ...]], sent: int, verified: int) -> None:
    tensors = {}
    for index, shape in enumerate(shapes):
        dtype, carrier = data.draw(DTYPES)
        values = np.arange(int(np.prod(shape)), dtype=np.int8).astype(carrier).reshape(shape)
        tensors[f"t{index}"] = Tensor(dtype=dtype, shape=shape, data=values)
    layout, memory, checksums = written(HostSource(tensors), sent)
    cut = layout.buckets(verified)
    assert [place for places in cut for place in places] == list(range(len(tensors)))
    for places in cut:
        layout.verify(memory, places, checksums[places.start : places.stop])
    got = layout.verified(memory, checksums)
    assert dict(got.checksums) == {name: one.checksum for name, one in tensors.items()}
    for name, one in tensors.items():
        mine = got.tensors[name]
        assert (mine.dtype, mine.shape, mine.data.dtype, mine.data.shape) == (one.dtype, one.shape, one.data.dtype, one.data.shape)
        assert np.array_equal(mine.data, one.data)
        assert not mine.data.flags.writeable


@given(st.lists(st.integers(0, 30), max_size=12), st.integers(1, 40))
def test_groups_are_runs_of_bounded_size(sizes: list[int], most: int) -> None:
    groups = cut_into_buckets(sizes, most)
    assert [place for group in groups for place in group] == list(range(len(sizes)))
    for group, after in zip(groups, [*groups[1:], None], strict=False):
        held = sum(sizes[place] for place in group)
        assert held <= most or len(group) == 1
        assert after is None or held + sizes[after.start] > most, "two groups would have fitted into one"


def test_probe_kind_and_extra_travel_bit_for_bit() -> None:
    probe = Probe(token_ids=np.array([3, 1, 2], np.int32), logprobs=np.array([-0.1, -1e-30], np.float32), tolerance=0.3)
    manifest = WeightsManifest(tensors=(), kind=WeightsKind.ADAPTER, extra={"adapter_config": '{"r": 8}'})
    got = HostLayout.from_bytes(HostLayout(version=1, manifest=manifest, probe=probe).to_bytes())
    assert (got.version, got.manifest) == (1, manifest)
    assert got.probe is not None
    assert got.probe.tolerance == 0.3
    for mine, sent in ((got.probe.token_ids, probe.token_ids), (got.probe.logprobs, probe.logprobs)):
        assert mine.dtype == sent.dtype
        assert np.array_equal(mine, sent)


def test_a_byte_that_changes_on_the_way_is_named() -> None:
    layout, memory, checksums = written(HostSource({"a": tensor(np.ones(50, np.float32)), "b": tensor(np.ones(50, np.float32))}))
    memory[layout.offsets[1] + 9] ^= 1
    layout.verify(memory, [0], checksums[:1])
    for check in (lambda: layout.verified(memory, checksums), lambda: layout.verify(memory, [1], checksums[1:])):
        with pytest.raises(WeightsError, match="snapshot 3 arrived damaged: tensor 'b' does not have the checksum"):
            check()


class Odd(HostSource):
    """Hands out something else than its manifest says."""

    def __init__(self, announced: Mapping[str, Tensor], handed: list[Mapping[str, Tensor]]) -> None:
        super().__init__(announced)
        self._handed = handed

    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        yield from self._handed


ONE, TWO = tensor(np.ones(2, np.float32)), tensor(np.zeros(2, np.float32))


@pytest.mark.parametrize(
    ("handed", "said"),
    [
        ([{"a": ONE}], r"tensor 'b' of version 3, .* is in its manifest and was not published \(1 missing\)"),
        ([{"a": ONE, "b": TWO}, {"a": ONE}], "tensor 'a' of version 3, .* was published twice"),
        ([{"a": ONE, "b": TWO, "c": TWO}], "tensor 'c' of version 3, .* is not in its manifest"),
        ([{"a": tensor(np.ones(2, np.float16), "float16")}], r"tensor 'a' .* is float16\[2\], its manifest says float32\[2\]"),
        ([{"a": tensor(np.ones((2, 1), np.float32))}], r"tensor 'a' .* is float32\[2, 1\], its manifest says float32\[2\]"),
    ],
)
def test_a_source_that_does_not_keep_to_its_manifest_is_named(handed: list[Mapping[str, Tensor]], said: str) -> None:
    with pytest.raises(WeightsError, match=said):
        written(Odd({"a": ONE, "b": TWO}, handed))


@pytest.mark.parametrize(
    "text", [b"", b"[]", b'{"version": 1}', b'{"version": 1, "tensors": [[1]], "kind": "full", "extra": {}, "probe": null}']
)
def test_what_is_no_layout_is_refused(text: bytes) -> None:
    with pytest.raises(WeightsError, match="list of tensors"):
        HostLayout.from_bytes(text)


def test_buckets_of_a_snapshot_are_its_tensors_with_a_seal_each() -> None:
    whole = Snapshot.of(7, {"a": ONE, "b": TWO, "c": ONE})
    buckets = list(whole.buckets(16))
    assert [(bucket.version, bucket.index, list(bucket.tensors)) for bucket in buckets] == [(7, 0, ["a", "b"]), (7, 1, ["c"])]
    assert len({bucket.checksum for bucket in buckets}) == 2
