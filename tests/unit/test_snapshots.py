"""Snapshots: any damage is found, and the tensor named."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from rlcore.errors import WeightsError
from rlcore.snapshots import Snapshot, Tensor


def tensor(values: list[float], dtype: str = "float32") -> Tensor:
    data = np.array(values, np.float32)
    return Tensor(dtype=dtype, shape=data.shape, data=data)


def test_an_undamaged_snapshot_verifies() -> None:
    Snapshot.of(3, {"a": tensor([1.0, 2.0]), "b": tensor([3.0])}).verify()


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ({"a": tensor([1.0, 2.0])}, "b"),
        ({"a": tensor([1.0, 2.5]), "b": tensor([3.0])}, "a"),
        ({"a": tensor([1.0, 2.0]), "b": tensor([3.0], "bfloat16")}, "b"),
        ({"a": tensor([3.0]), "b": tensor([1.0, 2.0])}, "a"),
        ({"a": tensor([1.0, 2.0]), "b": tensor([3.0]), "c": tensor([3.0])}, "c"),
    ],
    ids=["dropped", "changed", "other dtype", "swapped", "added"],
)
def test_damage_is_found_and_the_tensor_named(damage: dict[str, Tensor], named: str) -> None:
    sealed = Snapshot.of(3, {"a": tensor([1.0, 2.0]), "b": tensor([3.0])})
    with pytest.raises(WeightsError, match=f"'{named}'"):
        replace(sealed, tensors=damage).verify()


def test_a_reshaped_tensor_has_another_checksum() -> None:
    flat = tensor([1.0, 2.0, 3.0, 4.0])
    assert replace(flat, shape=(2, 2)).checksum != flat.checksum
