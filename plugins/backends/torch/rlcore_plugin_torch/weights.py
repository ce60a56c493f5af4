"""The policy's weights as they travel and as they are stored: Hugging Face names, tied weights once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rlcore.api import Tensor, WeightsManifest, WeightSource
from rlcore.api.weights import grouped

__all__ = ["TorchSource", "TorchTensor", "gathered", "named_weights", "save_checkpoint", "whole_state"]


def named_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Name -> tensor of everything that ``save_pretrained`` would write: of tied weights only the one that the others point to. Of a
    divided model each is the part that this rank holds (a DTensor)."""
    state = model.state_dict(keep_vars=True)
    pointers = set(getattr(model, "all_tied_weights_keys", None) or {})
    kept: dict[str, torch.Tensor] = {}
    owners: dict[int, str] = {}
    for name in sorted(state, key=lambda name: name in pointers):
        # A part may be empty, and then has no memory to tell it by.
        identity = id(state[name]) if isinstance(state[name], DTensor) else state[name].data_ptr()
        if owners.setdefault(identity, name) == name:
            kept[name] = state[name].detach()
    return {name: kept[name] for name in state if name in kept}


@torch.no_grad()
def gathered(weight: torch.Tensor, dtype: torch.dtype, *, keep: bool) -> torch.Tensor:
    """The whole of a weight, a floating-point one as ``dtype``; collective if it is divided. Without ``keep`` nothing of it stays."""
    if not isinstance(weight, DTensor):
        return weight
    whole = (weight.to(dtype) if weight.is_floating_point() else weight).full_tensor()
    return whole if keep else whole.new_empty(0)


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTensor(Tensor):
    """A weight of the policy where it is; ``data`` is a torch tensor, and what travels is ``dtype``."""

    data: torch.Tensor  # type: ignore[assignment]

    def copy_to(self, memory: np.ndarray) -> None:
        """Cast and copied from its device in one go."""
        torch.from_numpy(memory).view(getattr(torch, self.dtype)).view(self.shape).copy_(self.data)


class TorchSource(WeightSource):
    """The weights of a model as they stand, floating-point ones as ``dtype``; whole on rank 0. Only what is divided is copied, a bucket
    at a time."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, rank: int = 0) -> None:
        self._weights = named_weights(model)
        self._dtype, self._rank = dtype, rank
        self._divided = any(isinstance(weight, DTensor) for weight in self._weights.values())

    def manifest(self) -> WeightsManifest:
        """See WeightSource."""
        return WeightsManifest(tensors=tuple(self._tensor(name, weight).info(name) for name, weight in self._weights.items()))

    def buckets(self, max_bytes: int) -> Iterator[dict[str, Tensor]]:
        """See WeightSource."""
        names = list(self._weights)
        for places in grouped([info.nbytes for info in self.manifest().tensors], max_bytes):
            bucket = {names[place]: self._whole(names[place]) for place in places}
            yield bucket if self._rank == 0 or not self._divided else {}

    def _whole(self, name: str) -> Tensor:
        weight = self._weights[name]
        return self._tensor(name, weight, gathered(weight, self._dtype, keep=self._rank == 0))

    def _tensor(self, name: str, weight: torch.Tensor, data: torch.Tensor | None = None) -> TorchTensor:
        travels = self._dtype if weight.is_floating_point() else weight.dtype
        return TorchTensor(dtype=str(travels).removeprefix("torch."), shape=tuple(weight.shape), data=weight if data is None else data)


def whole_state(model: PreTrainedModel, dtype: torch.dtype, *, keep: bool) -> dict[str, torch.Tensor]:
    """What a checkpoint of a divided model holds, in the memory of the host; collective. Without ``keep`` nothing of it stays here."""
    state: dict[str, torch.Tensor] = {}
    for name, weight in named_weights(model).items():
        whole = gathered(weight, dtype, keep=keep)
        if keep:
            state[name] = (whole.to(dtype) if whole.is_floating_point() else whole).cpu()
    return state


def save_checkpoint(model: PreTrainedModel, folder: Path, dtype: torch.dtype, state: Mapping[str, torch.Tensor] | None = None) -> None:
    """A Hugging Face checkpoint (safetensors) with weights in ``dtype``; ``state``: those of a divided model, from ``whole_state``."""
    if state is None and dtype == model.dtype:
        model.save_pretrained(folder)
        return
    weights = named_weights(model) if state is None else state
    stored = {name: weight.to(dtype) if weight.is_floating_point() else weight for name, weight in weights.items()}
    model.save_pretrained(folder, state_dict=stored)
    # save_pretrained writes down the precision of the model in memory, which is that of the master weights.
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
