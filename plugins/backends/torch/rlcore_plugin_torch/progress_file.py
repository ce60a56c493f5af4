"""The small file of a trainer's state, written by rank 0: all of the state except weights and moments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rlcore.api import RunError
from rlcore_plugin_torch.checksums import SUFFIX, check_files, write_checksum

__all__ = ["read_progress", "write_progress"]

_FILE = "trainer.pt"
_FORMAT = 5
"""The format of this version.

Format 1 had the moments and weights of one process in the file itself. 2 had no checksums and no fingerprint of the model below adapters. 3
had neither the precision nor checksums of the weights. 4 had the weights of a run in bfloat16, whose model was rounded.
"""


def write_progress(folder: Path, progress: dict[str, Any]) -> None:
    """Write ``progress``, which must hold only types that torch loads without running code."""
    folder.mkdir(parents=True, exist_ok=True)
    torch.save({**progress, "format": _FORMAT}, folder / _FILE)
    write_checksum(folder / _FILE)


def read_progress(folder: Path) -> dict[str, Any]:
    """Return the state that ``write_progress`` received.

    Raises RunError for a file that cannot be read, was changed, or is of another version of this backend.
    """
    sealed = (folder / f"{_FILE}{SUFFIX}").is_file()
    if sealed:  # check before using any content; formats 1 and 2 have no checksum, and their error must name the format
        check_files([folder / _FILE])
    try:
        state = torch.load(folder / _FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # for damaged bytes torch may raise anything: IndexError, KeyError, UnpicklingError …
        raise RunError(
            f"the trainer's state in {folder / _FILE} cannot be read ({type(error).__name__}); copy the checkpoint again"
        ) from error
    if not isinstance(state, dict):
        raise RunError(f"{folder / _FILE} is not the state of a trainer: it holds a {type(state).__name__}; copy the checkpoint again")
    if (found := state.get("format", 1)) != _FORMAT:
        raise RunError(
            f"the trainer's state in {folder} has format {found}, but this version of the torch backend reads {_FORMAT}; read it with "
            "the version that wrote it, or start a new run from the checkpoint's model"
        )
    if not sealed:
        check_files([folder / _FILE])
    return state
