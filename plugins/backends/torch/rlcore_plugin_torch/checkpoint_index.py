"""The index of torch's distributed checkpoint, read without executing what a stranger wrote into it.

The index is a pickle, and torch would call whatever it names. Checksums do not help: who writes the folder writes them, too.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata, StorageMeta

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
"""What the index of tensors names. Not BytesStorageMetadata: torch unpickles the values that it describes, with no restriction."""


class _IndexUnpickler(pickle.Unpickler):
    """Builds the few classes of an index, and calls nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        """See Unpickler."""
        if module == "torch" and isinstance(getattr(torch, name, None), torch.dtype):
            return getattr(torch, name)
        if (module, name) in _ADMITTED:
            return super().find_class(module, name)
        raise pickle.UnpicklingError(
            f"its index {_INDEX} names {module}.{name}, which is none of the classes of an index of tensors; it was not executed; "
            "take a checkpoint that rlcore wrote"
        )


class IndexedReader(FileSystemReader):
    """Reads the index by ``_IndexUnpickler``, and tensors from files of its own folder alone."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """See FileSystemReader."""
        with (Path(self.path) / _INDEX).open("rb") as file:
            index = _IndexUnpickler(file).load()
        if not isinstance(index, Metadata) or not isinstance(index.storage_data, dict):
            raise pickle.UnpicklingError(f"its index {_INDEX} is no index of tensors; take a checkpoint that rlcore wrote")
        for place in index.storage_data.values():
            name = getattr(place, "relative_path", None)
            if not isinstance(name, str) or Path(name).name != name or not name.endswith(_DATA):
                raise pickle.UnpicklingError(
                    f"its index {_INDEX} says that a tensor is in {name!r}, which is no {_DATA} file of this folder; "
                    "take a checkpoint that rlcore wrote"
                )
        index.storage_meta = index.storage_meta or StorageMeta()
        index.storage_meta.load_id = self.load_id
        return index
