"""The policy's weights as they travel and as they are stored: Hugging Face names, tied weights once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from rlcore.api import Tensor

__all__ = ["named_weights", "save_checkpoint", "tensors"]


def named_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Name -> tensor of everything that ``save_pretrained`` would write: of tied weights only the one that the others point to."""
    state = model.state_dict()
    pointers = set(getattr(model, "all_tied_weights_keys", None) or {})
    kept: dict[str, torch.Tensor] = {}
    owners: dict[int, str] = {}
    for name in sorted(state, key=lambda name: name in pointers):
        if owners.setdefault(state[name].data_ptr(), name) == name:
            kept[name] = state[name]
    return {name: kept[name] for name in state if name in kept}


def tensors(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[tuple[str, Tensor]]:
    """(name, tensor) one at a time, floating-point ones as ``dtype``; each is a copy of its own that later training does not touch."""
    for name, weight in named_weights(model).items():
        wanted = dtype if weight.is_floating_point() else weight.dtype
        value = weight.detach().to(device="cpu", dtype=wanted, copy=True).contiguous()
        yield name, Tensor(dtype=str(wanted).removeprefix("torch."), shape=tuple(value.shape), data=_array(value))


def save_checkpoint(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> None:
    """A Hugging Face checkpoint (safetensors) with weights in ``dtype``."""
    if dtype == model.dtype:
        model.save_pretrained(folder)
        return
    state = {name: weight.to(dtype) if weight.is_floating_point() else weight for name, weight in named_weights(model).items()}
    model.save_pretrained(folder, state_dict=state)
    # save_pretrained writes down the precision of the model in memory, which is that of the master weights.
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _array(value: torch.Tensor) -> np.ndarray:
    if value.dtype == torch.bfloat16:
        return value.view(torch.int16).numpy().view(np.uint16)
    return value.numpy()
