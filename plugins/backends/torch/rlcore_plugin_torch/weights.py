"""The policy's weights as they travel and as they are stored: Hugging Face names, tied weights once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from transformers import PreTrainedModel

from rlcore.api import Tensor, WeightsManifest, WeightSource
from rlcore.api.weights import grouped

__all__ = ["TorchSource", "TorchTensor", "named_weights", "save_checkpoint"]


def named_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Name -> parameter or buffer of everything that ``save_pretrained`` would write: of tied weights only the one that the others point
    to. They are the model's own, so that they move with it."""
    state = model.state_dict(keep_vars=True)
    pointers = set(getattr(model, "all_tied_weights_keys", None) or {})
    kept: dict[str, torch.Tensor] = {}
    owners: dict[int, str] = {}
    for name in sorted(state, key=lambda name: name in pointers):
        if owners.setdefault(state[name].data_ptr(), name) == name:
            kept[name] = state[name]
    return {name: kept[name] for name in state if name in kept}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTensor(Tensor):
    """A weight of the policy where it is; ``data`` is a torch tensor, and what travels is ``dtype``."""

    data: torch.Tensor  # type: ignore[assignment]

    def detached(self) -> TorchTensor:
        """The same memory, without the parameter that owns it: that may move to the host once its bucket was read."""
        return replace(self, data=self.data.detach())

    def copy_to(self, memory: np.ndarray) -> None:
        """Cast and copied from its device in one go."""
        torch.from_numpy(memory).view(getattr(torch, self.dtype)).view(self.shape).copy_(self.data)


class TorchSource(WeightSource):
    """The weights of a model as they stand, floating-point ones as ``dtype``; no copy is made here."""

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype) -> None:
        self._tensors = {
            name: TorchTensor(
                dtype=str(dtype if weight.is_floating_point() else weight.dtype).removeprefix("torch."),
                shape=tuple(weight.shape),
                data=weight,
            )
            for name, weight in named_weights(model).items()
        }

    def manifest(self) -> WeightsManifest:
        """See WeightSource."""
        return WeightsManifest(tensors=tuple(tensor.info(name) for name, tensor in self._tensors.items()))

    def buckets(self, max_bytes: int) -> Iterator[dict[str, Tensor]]:
        """See WeightSource."""
        names = list(self._tensors)
        for places in grouped([info.nbytes for info in self.manifest().tensors], max_bytes):
            yield {names[place]: self._tensors[names[place]].detached() for place in places}


def save_checkpoint(model: PreTrainedModel, folder: Path, dtype: torch.dtype) -> None:
    """A Hugging Face checkpoint (safetensors) with weights in ``dtype``."""
    if dtype == model.dtype:
        model.save_pretrained(folder)
        return
    state = {name: weight.detach().to(dtype) if weight.is_floating_point() else weight for name, weight in named_weights(model).items()}
    model.save_pretrained(folder, state_dict=state)
    # save_pretrained writes down the precision of the model in memory, which is that of the master weights.
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
