"""The policy's weights as they travel and as they are stored: Hugging Face names, tied weights once."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file
from transformers import PreTrainedModel

from rlcore.api import Tensor, WeightsKind, WeightsManifest, WeightSource
from rlcore.api.weights import grouped

if TYPE_CHECKING:
    from rlcore_plugin_torch.adapters import Adapters, Pair

__all__ = ["AdapterSource", "TorchSource", "TorchTensor", "named_weights", "save_checkpoint"]


def named_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Name -> tensor of everything that ``save_pretrained`` would write: of tied weights only the one that the others point to. Of a model
    with adapters: the weights below them, by the names that they have in the plain model."""
    state = {name.replace(".base_layer.", "."): weight for name, weight in model.state_dict().items() if ".lora_" not in name}
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

    def copy_to(self, memory: np.ndarray) -> None:
        """Cast and copied from its device in one go."""
        torch.from_numpy(memory).view(getattr(torch, self.dtype)).view(self.shape).copy_(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class MergedTensor(TorchTensor):
    """A weight below an adapter, which is added when the bytes are asked for: one merged tensor exists at a time."""

    pair: Pair

    def copy_to(self, memory: np.ndarray) -> None:
        """Added in the precision of the weight, then cast and copied."""
        merged = TorchTensor(dtype=self.dtype, shape=self.shape, data=self.pair.merged(self.data))
        merged.copy_to(memory)


class TorchSource(WeightSource):
    """The weights of a model as they stand, adapters merged, floating-point ones as ``dtype``; no copy is made here."""

    kind = WeightsKind.FULL
    extra: Mapping[str, str] = {}

    def __init__(self, model: PreTrainedModel, dtype: torch.dtype, adapters: Adapters | None = None) -> None:
        self._tensors = {name: _travelling(weight, dtype) for name, weight in named_weights(model).items()}
        for name, pair in adapters.pairs().items() if adapters else ():
            plain = self._tensors[name]
            self._tensors[name] = MergedTensor(dtype=plain.dtype, shape=plain.shape, data=plain.data, pair=pair)

    def manifest(self) -> WeightsManifest:
        """See WeightSource."""
        infos = tuple(tensor.info(name) for name, tensor in self._tensors.items())
        return WeightsManifest(tensors=infos, kind=self.kind, extra=self.extra)

    def buckets(self, max_bytes: int) -> Iterator[dict[str, Tensor]]:
        """See WeightSource."""
        names = list(self._tensors)
        for places in grouped([info.nbytes for info in self.manifest().tensors], max_bytes):
            yield {names[place]: self._tensors[names[place]] for place in places}


class AdapterSource(TorchSource):
    """The matrices of the adapters alone, as ``dtype``, by PEFT's names."""

    kind = WeightsKind.ADAPTER

    def __init__(self, adapters: Adapters, dtype: torch.dtype) -> None:
        self._tensors = {name: _travelling(matrix, dtype) for name, matrix in adapters.tensors().items()}
        self.extra = {"config": adapters.config_text(), "base": adapters.base}


def _travelling(weight: torch.Tensor, dtype: torch.dtype) -> TorchTensor:
    travels = dtype if weight.is_floating_point() else weight.dtype
    return TorchTensor(dtype=str(travels).removeprefix("torch."), shape=tuple(weight.shape), data=weight.detach())


def save_checkpoint(model: PreTrainedModel, folder: Path, dtype: torch.dtype, adapters: Adapters | None = None) -> None:
    """A Hugging Face checkpoint (safetensors) with weights in ``dtype``, adapters merged; these are beside it in ``adapter``, as PEFT's own
    file in full precision."""
    if dtype == model.dtype and adapters is None:
        model.save_pretrained(folder)
        return
    state = named_weights(model)
    for name, pair in adapters.pairs().items() if adapters else ():
        state[name] = pair.merged(state[name])
    state = {name: weight.to(dtype) if weight.is_floating_point() else weight for name, weight in state.items()}
    model.save_pretrained(folder, state_dict=state)
    # save_pretrained writes down the precision of the model in memory, which is that of the master weights.
    path = folder / "config.json"
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    if adapters is not None:
        _save_adapters(adapters, folder / "adapter")


def _save_adapters(adapters: Adapters, folder: Path) -> None:
    folder.mkdir()
    (folder / "adapter_config.json").write_text(adapters.config_text(), encoding="utf-8")
    tensors = {name: matrix.detach().cpu().contiguous() for name, matrix in adapters.tensors().items()}
    save_file(tensors, folder / "adapter_model.safetensors", metadata={"format": "pt"})
