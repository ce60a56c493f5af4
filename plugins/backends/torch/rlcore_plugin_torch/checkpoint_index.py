"""Read the index of torch's distributed checkpoint without executing anything that a third party wrote into it.

The index is a pickle, and torch would call any function that it names. Checksums do not help: the author of the folder can write those too.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

from rlcore.api import ConfigError

__all__ = ["IndexedReader"]

_INDEX, _DATA = ".metadata", ".distcp"
_ADMITTED = {
    *(
        ("torch.distributed.checkpoint.metadata", name)
        for name in (
            "ChunkStorageMetadata", "Metadata", "MetadataIndex", "StorageMeta", "TensorProperties", "TensorStorageMetadata",
            "_MEM_FORMAT_ENCODING",
        )
    ),
    ("torch.distributed.checkpoint.filesystem", "_StorageInfo"),
    ("pathlib", "PosixPath"),
    ("pathlib._local", "PosixPath"),  # Python 3.13
    ("torch", "Size"),
    ("torch.serialization", "_get_layout"),
}  # fmt: skip
"""The names that an index of tensors uses. BytesStorageMetadata is not admitted: torch unpickles the values that it describes, without
restriction."""
_ADVICE = "resume from a checkpoint that rlcore wrote: type --step N with another one"


class _IndexUnpickler(pickle.Unpickler):
    """An unpickler that builds the few classes of an index, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """See Unpickler."""
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) in _ADMITTED:
            return super().find_class(module, name)
        raise _NotAdmittedError(f"names {module}.{name}, which no index of tensors needs; it was not executed")


class _NotAdmittedError(Exception):
    """Half a sentence about content that an index must not have."""


class IndexedReader(FileSystemReader):
    """A reader of tensors that uses an index that this module has checked, and only files of its own folder."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._index = _read_index(folder)

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """See FileSystemReader."""
        self._index.storage_meta = self._index.storage_meta or StorageMeta()
        self._index.storage_meta.load_id = self.load_id
        return self._index


def _read_index(folder: Path) -> Metadata:
    """Read the index of a checkpoint's tensors.

    Raises ConfigError if it names anything except the classes of an index, or a file of another folder.
    """
    file = folder / _INDEX
    try:
        with file.open("rb") as stream:
            index = _IndexUnpickler(stream).load()
        return _checked(index)
    except _NotAdmittedError as error:
        raise ConfigError(f"{file}: it {error}; {_ADVICE}") from None
    except Exception as error:  # an unpickler may raise anything, depending on the bytes
        raise ConfigError(f"{file}: it is not an index of tensors ({type(error).__name__}); {_ADVICE}") from None


def _checked(index: Any) -> Metadata:
    if not isinstance(index, Metadata) or not isinstance(index.storage_data, dict):
        raise _NotAdmittedError(f"holds a {type(index).__name__} in place of an index of tensors")
    for place in index.storage_data.values():
        name = getattr(place, "relative_path", None)
        if not isinstance(name, str) or Path(name).name != name or not name.endswith(_DATA):
            raise _NotAdmittedError(f"says that a tensor is in {name!r}, which is not a {_DATA} file in its folder")
    return index
