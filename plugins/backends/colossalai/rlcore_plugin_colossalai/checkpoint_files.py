"""The files of a checkpoint: a Hugging Face folder, and one file of trainer state with its checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file

from rlcore.api import RunError

__all__ = ["read_state", "write_model", "write_state"]

_FILE, _SUM = "colossalai.pt", "colossalai.pt.sha256"


def write_model(folder: Path, configuration: str, state: Mapping[str, torch.Tensor]) -> None:
    """``state`` whole, by name, without a tied head; ``configuration``: the text of the ``config.json`` that the model was read with,
    which every version of transformers reads. Its precision becomes that of ``state``."""
    settings = json.loads(configuration)
    told = "dtype" if "dtype" in settings else "torch_dtype"
    settings[told] = str(next(iter(state.values())).dtype).removeprefix("torch.")
    (folder / "config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    save_file({name: tensor.contiguous() for name, tensor in state.items()}, folder / "model.safetensors", metadata={"format": "pt"})


def write_state(folder: Path, state: Mapping[str, Any]) -> None:
    """In types that torch loads without running code."""
    torch.save(dict(state), folder / _FILE)
    (folder / _SUM).write_text(_checksum(folder / _FILE) + "\n", encoding="utf-8")


def read_state(folder: Path) -> dict[str, Any]:
    """What ``write_state`` was given; RunError if a byte of it has changed, or a file is absent."""
    try:
        due, found = (folder / _SUM).read_text(encoding="utf-8").strip(), _checksum(folder / _FILE)
    except OSError as error:
        raise RunError(f"the trainer's state in {folder} cannot be read ({error.strerror}); copy the checkpoint again") from error
    if due != found:
        raise RunError(f"{folder / _FILE} is damaged: its bytes are not those that were written; copy the checkpoint again")
    state: dict[str, Any] = torch.load(folder / _FILE, map_location="cpu", weights_only=True)
    return state


def _checksum(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
