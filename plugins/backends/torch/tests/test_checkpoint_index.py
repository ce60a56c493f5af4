"""An index of a checkpoint that a stranger wrote: nothing in it is executed."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from rlcore_plugin_torch.checksums import write_checksum
from rlcore_plugin_torch.sharded_state import begin_saving, read_tensors

from rlcore.api import ConfigError


class _Calls:
    def __init__(self, *call: Any) -> None:
        self._call = call

    def __reduce__(self) -> Any:
        return self._call


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    begin_saving({"a": torch.arange(6.0)}, tmp_path / "shards", None).result()
    return tmp_path / "shards"


def _with_index(folder: Path, index: Any) -> None:
    (folder / ".metadata").write_bytes(pickle.dumps(index))
    write_checksum(folder / ".metadata")


@pytest.mark.parametrize("call", [(os.system, "touch "), (eval, "open(%r, 'w')"), (torch.load, "")], ids=["system", "eval", "load"])
def test_an_index_that_calls_something_is_refused_and_calls_nothing(folder: Path, tmp_path: Path, call: Any) -> None:
    made = tmp_path / "made"
    text = call[1] % str(made) if "%" in call[1] else call[1] + str(made)
    _with_index(folder, _Calls(call[0], (text,)))
    with pytest.raises(ConfigError, match=r"/shards/\.metadata: it names .*; it was not executed; resume from"):
        read_tensors({"a": torch.zeros(6)}, folder, None)
    assert not made.exists()


def test_a_value_that_torch_would_unpickle_is_refused(folder: Path, tmp_path: Path) -> None:
    made, index = tmp_path / "made", pickle.loads((folder / ".metadata").read_bytes())
    from torch.distributed.checkpoint.metadata import BytesStorageMetadata

    data = folder / "__0_0.distcp"
    torch.save(_Calls(os.system, (f"touch {made}",)), data)
    index.state_dict_metadata["a"] = BytesStorageMetadata()
    (place,) = index.storage_data
    index.storage_data = {type(place)("a"): type(index.storage_data[place])(data.name, 0, data.stat().st_size)}
    _with_index(folder, index)
    with pytest.raises(ConfigError, match=r"names .*BytesStorageMetadata"):
        read_tensors({"a": torch.zeros(6)}, folder, None)
    assert not made.exists()


def test_a_tensor_is_read_from_a_file_of_the_folder_alone(folder: Path, tmp_path: Path) -> None:
    index = pickle.loads((folder / ".metadata").read_bytes())
    for place in index.storage_data.values():
        place.relative_path = "../elsewhere.distcp"
    (tmp_path / "elsewhere.distcp").write_bytes((folder / "__0_0.distcp").read_bytes())
    _with_index(folder, index)
    with pytest.raises(ConfigError, match=r"a tensor is in '\.\./elsewhere\.distcp', which is not a \.distcp file in its folder"):
        read_tensors({"a": torch.zeros(6)}, folder, None)


def test_an_honest_index_is_read(folder: Path) -> None:
    got = torch.zeros(6)
    read_tensors({"a": got}, folder, None)
    assert torch.equal(got, torch.arange(6.0))
