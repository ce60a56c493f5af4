"""Tensors of a checkpoint, written by all ranks at once while training goes on, and read into whatever layout the run has then.

torch's distributed checkpoint keeps of every tensor which rows are in which file, so that 2 ranks can read what 4 wrote. Its index is a
pickle: ``checkpoint_index`` reads it, and executes nothing. Beside each file is its checksum.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import SavePlan, SavePlanner
from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future as TorchFuture

from rlcore.api import RunError
from rlcore_plugin_torch.checkpoint_index import IndexedReader
from rlcore_plugin_torch.checksums import SUFFIX, check_files, write_checksum

__all__ = ["SHARDS", "TensorsSaving", "begin_saving", "check_shards", "read_tensors"]

_INDEX, _DATA = ".metadata", ".distcp"
"""How torch names its index, and how the names of all other files end."""

SHARDS = "shards"
"""The folder of the tensors in that of the trainer's state."""


@dataclass(frozen=True, slots=True)
class TensorsSaving:
    """The ``PendingSave`` of ``begin_saving``."""

    folder: Path
    written: Future[Any]

    def done(self) -> bool:
        """See ``PendingSave``."""
        return self.written.done()

    def result(self) -> None:
        """Wait until all ranks have written; RunError with what one of them failed with."""
        try:
            self.written.result()
        except (CheckpointException, Exception) as error:  # the former is no Exception
            raise RunError(f"the trainer's state was not written to {self.folder}: {_reason(error)}") from error


def begin_saving(tensors: Mapping[str, torch.Tensor], folder: Path, group: dist.ProcessGroup | None) -> TensorsSaving:
    """Copy ``tensors`` (of a divided one the part of this rank) to the memory of the host, and have a thread write the copy.

    ``group``: all ranks, by gloo, for this alone: the thread's meetings must not mix with those of training. None for one rank.
    """
    _quiet()
    # Named, since torch would take the writer for one that copies as well. Not pinned, not shared, in this thread.
    stager = DefaultStager(StagingOptions(False, False, False, False))
    try:
        written = dcp.async_save(
            dict(tensors), storage_writer=_HashedWriter(folder), process_group=group, async_stager=stager, no_dist=group is None
        )
    except BaseException:
        stager.close()
        raise
    assert isinstance(written, Future)
    written.add_done_callback(lambda _: stager.close())
    return TensorsSaving(folder, written)


class _HashedWriter(FileSystemWriter):
    """Every rank adds the checksums of the files that it wrote, in the thread that wrote them, before the others learn that it has."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        """See FileSystemWriter."""
        results = super().write_data(plan, planner)
        for name in {result.storage_data.relative_path for result in results.wait()}:
            write_checksum(Path(self.path) / name)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """See FileSystemWriter; rank 0 alone, when all have written."""
        super().finish(metadata, results)
        write_checksum(Path(self.path) / _INDEX)


def check_shards(folder: Path, rank: int, size: int) -> None:
    """Check every ``size``-th file of the folder, from number ``rank`` on, so that so many ranks read each file once.

    RunError, naming the file, for one that is not what was written, and if the folder has no index, which is written last."""
    index = folder / _INDEX
    if not index.is_file():
        raise RunError(f"the trainer's state in {folder} has no index {_INDEX}, so it was not written to its end; take another checkpoint")
    data = [file for file in folder.iterdir() if file.name.endswith(_DATA) and file.stat().st_size]
    known = [folder / file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{_DATA}{SUFFIX}")]
    check_files(sorted({index, *data, *known})[rank::size])


def read_tensors(tensors: Mapping[str, torch.Tensor], folder: Path, group: dist.ProcessGroup | None) -> None:
    """Fill ``tensors`` in place; RunError if the folder does not hold them all in these shapes, and on every rank ConfigError if its index
    is none that rlcore wrote."""
    _quiet()
    reader = IndexedReader(folder)
    try:
        with torch.no_grad():
            dcp.load(dict(tensors), storage_reader=reader, process_group=group, no_dist=group is None)
    except (CheckpointException, Exception) as error:
        raise RunError(f"the trainer's state in {folder} cannot be read: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    while isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0][:300]}"


def _quiet() -> None:
    """One rank is told each time that it is alone; the warning comes from a thread, where no context can hold it back."""
    warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
