"""Tensors of a checkpoint: all ranks write them at once while training continues, and a run in any layout can read them.

torch's distributed checkpoint records which rows of every tensor are in which file, so that 2 ranks can read the files of 4. Its index is a
pickle: ``checkpoint_index`` reads it without executing anything. A checksum is next to each file.
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
"""The name of torch's index, and the ending of the names of all other files."""

SHARDS = "shards"
"""The folder of the tensors in the folder of the trainer's state."""


@dataclass(frozen=True, slots=True)
class TensorsSaving:
    """The ``PendingSave`` that ``begin_saving`` returns."""

    folder: Path
    written: Future[Any]

    def done(self) -> bool:
        """See ``PendingSave``."""
        return self.written.done()

    def result(self) -> None:
        """Wait until all ranks have written. Raises RunError with the error of the rank that failed."""
        try:
            self.written.result()
        except (CheckpointException, Exception) as error:  # CheckpointException is not an Exception
            raise RunError(f"the trainer's state was not written to {self.folder}: {_reason(error)}") from error


def begin_saving(tensors: Mapping[str, torch.Tensor], folder: Path, group: dist.ProcessGroup | None) -> TensorsSaving:
    """Copy ``tensors`` to host memory (of a divided tensor, the part of this rank), and let a thread write the copy.

    ``group``: a gloo group of all ranks that only this function uses, because the thread's collective calls must not mix with those of
    training. None for one rank.
    """
    _quiet()
    # The stager is passed explicitly, since torch would otherwise assume that the writer also copies. Options: not pinned, not shared, in
    # this thread.
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
    """A writer that adds the checksums of this rank's files, in the thread that wrote them, before the other ranks learn that it is
    done."""

    def write_data(self, plan: SavePlan, planner: SavePlanner) -> TorchFuture[list[WriteResult]]:
        """See FileSystemWriter."""
        results = super().write_data(plan, planner)
        for name in {result.storage_data.relative_path for result in results.wait()}:
            write_checksum(Path(self.path) / name)
        return results

    def finish(self, metadata: Metadata, results: list[list[WriteResult]]) -> None:
        """See FileSystemWriter; runs only on rank 0, when all ranks have written."""
        super().finish(metadata, results)
        write_checksum(Path(self.path) / _INDEX)


def check_shards(folder: Path, rank: int, size: int) -> None:
    """Check every ``size``-th file of the folder, beginning with number ``rank``, so that ``size`` ranks read each file once between them.

    Raises RunError, which names the file, if a file is not the one that was written. Raises it also if the folder has no index, which is
    written last.
    """
    index = folder / _INDEX
    if not index.is_file():
        raise RunError(f"the trainer's state in {folder} has no index {_INDEX}, so it was not written completely; take another checkpoint")
    data = [file for file in folder.iterdir() if file.name.endswith(_DATA) and file.stat().st_size]
    known = [folder / file.name.removesuffix(SUFFIX) for file in folder.glob(f"*{_DATA}{SUFFIX}")]
    check_files(sorted({index, *data, *known})[rank::size])


def read_tensors(tensors: Mapping[str, torch.Tensor], folder: Path, group: dist.ProcessGroup | None) -> None:
    """Fill ``tensors`` in place.

    Raises RunError if the folder does not hold all of them in these shapes, and ConfigError on every rank if rlcore did not write its
    index.
    """
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
    """Suppress torch's warning, given each time, that one rank is alone. It comes from a thread, where a context cannot suppress it."""
    warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
