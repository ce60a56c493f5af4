"""Tensors of a checkpoint, written by all ranks at once while training goes on, and read into whatever layout the run has then.

torch's distributed checkpoint keeps of every tensor which rows are in which file, so that 2 ranks can read what 4 wrote. Its index is a
pickle: like any checkpoint of torch it is to be read from folders that one trusts.
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

from rlcore.api import RunError

__all__ = ["SHARDS", "TensorsSaving", "begin_saving", "read_tensors"]


SHARDS = "shards"
"""The folder of the tensors in that of the trainer's state."""


@dataclass(frozen=True, slots=True)
class TensorsSaving:
    """The ``Saving`` of ``begin_saving``."""

    folder: Path
    written: Future[Any]

    def done(self) -> bool:
        """See ``Saving``."""
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
    written = dcp.async_save(dict(tensors), checkpoint_id=folder, process_group=group, no_dist=group is None)
    assert isinstance(written, Future)
    return TensorsSaving(folder, written)


def read_tensors(tensors: Mapping[str, torch.Tensor], folder: Path, group: dist.ProcessGroup | None) -> None:
    """Fill ``tensors`` in place; RunError if the folder does not hold them all in these shapes."""
    _quiet()
    try:
        with torch.no_grad():
            dcp.load(dict(tensors), checkpoint_id=folder, process_group=group, no_dist=group is None)
    except (CheckpointException, Exception) as error:
        raise RunError(f"the trainer's state in {folder} cannot be read: {_reason(error)}") from error


def _reason(error: BaseException) -> str:
    while isinstance(error, CheckpointException) and error.failures:
        error = next(iter(error.failures.values()))[0]
    return f"{type(error).__name__}: {(str(error).strip().splitlines() or ['no reason given'])[0][:300]}"


def _quiet() -> None:
    """One rank is told each time that it is alone; the warning comes from a thread, where no context can hold it back."""
    warnings.filterwarnings("ignore", message="torch.distributed is (disabled|unavailable)")
