"""Snapshots: any damage is found, and the tensor named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import xxhash

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Snapshot, Tensor, tensor_hasher


def tensor(values: list[float], dtype: str = "float32") -> Tensor:
    data = np.array(values, np.float32)
    return Tensor(dtype=dtype, shape=data.shape, data=data)


def test_an_undamaged_snapshot_verifies() -> None:
    Snapshot.of(3, {"a": tensor([1.0, 2.0]), "b": tensor([3.0])}).verify()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"a": tensor([1.0, 2.5]), "b": tensor([3.0])}, "a"),
        ({"a": tensor([1.0, 2.0]), "b": tensor([3.0], "bfloat16")}, "b"),
        ({"a": tensor([3.0]), "b": tensor([1.0, 2.0])}, "a"),
    ],
    ids=["changed", "other dtype", "swapped"],
)
def test_damage_is_found_and_the_tensor_named(damage: dict[str, Tensor], named: str) -> None:
    sealed = Snapshot.of(3, {"a": tensor([1.0, 2.0]), "b": tensor([3.0])})
    with pytest.raises(WeightsError, match=f"'{named}'"):
        replace(sealed, tensors=damage).verify()


def test_a_reshaped_tensor_has_another_checksum() -> None:
    flat = tensor([1.0, 2.0, 3.0, 4.0])
    assert replace(flat, shape=(2, 2)).checksum != flat.checksum


def test_a_checksum_is_xxh3_of_dtype_shape_and_bytes_in_any_cut() -> None:
    one = tensor([1.0, 2.0, 3.0])
    assert one.checksum == xxhash.xxh3_64_intdigest(b"float32(3,)" + np.array([1.0, 2.0, 3.0], "<f4").tobytes())
    hasher = tensor_hasher("float32", (3,))
    for byte in one.data.tobytes():
        hasher.update(bytes([byte]))
    assert hasher.intdigest() == one.checksum


def test_an_array_with_gaps_has_the_checksum_of_its_values() -> None:
    wide = np.arange(8, dtype=np.float32).reshape(4, 2)
    assert Tensor(dtype="float32", shape=(4,), data=wide[:, 0]).checksum == tensor([0.0, 2.0, 4.0, 6.0]).checksum


def test_what_is_swapped_is_said() -> None:
    sealed = Snapshot.of(3, {"a": tensor([1.0]), "b": tensor([2.0])})
    with pytest.raises(WeightsError, match="tensor 'a' does not have the checksum that was sent; it carries the data that was sent as 'b'"):
        replace(sealed, tensors={"a": sealed.tensors["b"], "b": sealed.tensors["a"]}).verify()


def test_a_snapshot_sealed_here_notices_what_is_written_later() -> None:
    values = np.zeros(4, np.float32)
    sealed = Snapshot.of(1, {"a": Tensor(dtype="float32", shape=(4,), data=values)})
    values[2] = 1.0
    with pytest.raises(WeightsError, match="'a'"):
        sealed.verify()
