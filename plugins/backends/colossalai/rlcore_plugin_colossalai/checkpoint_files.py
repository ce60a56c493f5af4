"""The files of a checkpoint: a Hugging Face folder, and the trainer's state, whole tensors by name with the checksum of each file.

Every rank takes part in gathering. Rank 0 writes, and holds the tensors of one file at a time.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from rlcore.api import RunError
from rlcore.api.weights import cut_into_buckets

__all__ = ["SavedState", "write_head", "write_state_head", "write_tensors"]

FILE_BYTES = 4 * 1024**3
"""The most bytes of a file, unless it holds a single larger tensor."""
_FILE, _SUM = "colossalai.pt", "colossalai.pt.sha256"


def write_tensors(
    folder: Path, stem: str, sizes: Mapping[str, int], tensors: Iterable[torch.Tensor], *, writes: bool, file_bytes: int = FILE_BYTES
) -> dict[str, str]:
    """Write the tensors into files, and return the file of each name.

    ``sizes``: bytes by name; ``tensors``: in that order, each gathered when it is requested. A write error is raised after the last tensor,
    so that no rank waits for another.
    """
    names, stream = list(sizes), iter(tensors)
    groups, placed = cut_into_buckets(list(sizes.values()), file_bytes), {}
    failure: Exception | None = None
    for number, places in enumerate(groups, start=1):
        file = f"{stem}.safetensors" if len(groups) == 1 else f"{stem}-{number:05d}-of-{len(groups):05d}.safetensors"
        placed |= {names[place]: file for place in places}
        held = {}
        for name, tensor in zip([names[place] for place in places], islice(stream, len(places)), strict=True):
            if writes and failure is None:
                held[name] = tensor.cpu().contiguous()
        try:
            if held:
                save_file(held, folder / file, metadata={"format": "pt"})
        except Exception as error:  # safetensors raises its own errors for those of the disk
            failure = error
    if failure is not None:
        raise failure
    return placed


def write_head(folder: Path, configuration: str, dtype: str, placed: Mapping[str, str], sizes: Mapping[str, int]) -> None:
    """Write the files of a Hugging Face folder in addition to its tensors.

    ``configuration``: the text of the ``config.json`` that the model was read with, which every version of transformers reads; its
    precision becomes ``dtype``.
    """
    settings = json.loads(configuration)
    settings["dtype" if "dtype" in settings else "torch_dtype"] = dtype
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    if len(set(placed.values())) > 1:
        index = {"metadata": {"total_size": sum(sizes.values())}, "weight_map": dict(placed)}
        (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")


def write_state_head(folder: Path, head: Mapping[str, Any], placed: Mapping[str, str]) -> None:
    """Write ``head``, which must hold only types that torch loads without running code, the file of each tensor, and the checksums."""
    sums = {file: _checksum(folder / file) for file in sorted(set(placed.values()))}
    torch.save({**head, "placed": dict(placed), "sums": sums}, folder / _FILE)
    (folder / _SUM).write_text(_checksum(folder / _FILE) + "\n", encoding="utf-8")


class SavedState:
    """The state that ``write_tensors`` and ``write_state_head`` wrote. Raises RunError if a byte of it has changed, or a file is absent."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        try:
            self._check(_FILE, (folder / _SUM).read_text(encoding="utf-8").strip())
            self.head: dict[str, Any] = torch.load(folder / _FILE, map_location="cpu", weights_only=True)
            for file, due in self.head["sums"].items():
                self._check(file, due)
        except (OSError, UnicodeDecodeError) as error:
            why = f"{Path(error.filename).name}: {error.strerror}" if isinstance(error, OSError) and error.filename else str(error)
            raise RunError(f"the trainer's state in {folder} cannot be read ({why}); copy the checkpoint again") from error

    def _check(self, file: str, due: str) -> None:
        if _checksum(self._folder / file) != due:
            raise RunError(f"{self._folder / file} is damaged: its bytes are not those that were written; copy the checkpoint again")

    def tensor(self, name: str) -> torch.Tensor | None:
        """Return the whole tensor of that name; None if it was not saved."""
        if name not in self.head["placed"]:
            return None
        with safe_open(self._folder / self.head["placed"][name], "pt") as file:
            found: torch.Tensor = file.get_tensor(name)
        return found


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
