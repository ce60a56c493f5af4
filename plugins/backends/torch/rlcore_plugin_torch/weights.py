"""The policy's weights for transfer and for storage: Hugging Face names, tied weights once, adapters merged or separate."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from safetensors.torch import save_file
from torch.distributed.tensor import DTensor
from transformers import PreTrainedModel

from rlcore.api import Tensor, TensorInfo, WeightsKind, WeightsManifest, WeightSource
from rlcore.api.weights import cut_into_buckets

if TYPE_CHECKING:
    from rlcore_plugin_torch.adapters import Adapters, Pair

__all__ = [
    "ExportedWeight",
    "TorchSource",
    "TorchTensor",
    "adapter_weights",
    "exported_weights",
    "named_weights",
    "save_adapters",
    "stored",
]


def named_weights(model: PreTrainedModel) -> dict[str, torch.Tensor]:
    """Return every parameter or buffer that ``save_pretrained`` would write, by name. Of tied weights only the one that the others point
    to.

    They are the model's own tensors, so they move with it. Of a divided model each is the part that this rank holds (a DTensor). Of a model
    with adapters each is the weight below them, under its name in the plain model.
    """
    found = model.state_dict(keep_vars=True)
    state = {name.replace(".base_layer.", "."): weight for name, weight in found.items() if ".lora_" not in name}
    pointers = set(getattr(model, "all_tied_weights_keys", None) or {})
    kept: dict[str, torch.Tensor] = {}
    owners: dict[int, str] = {}
    for name in sorted(state, key=lambda name: name in pointers):
        # A part may be empty, and then has no memory address to identify it.
        identity = id(state[name]) if isinstance(state[name], DTensor) else state[name].data_ptr()
        if owners.setdefault(identity, name) == name:
            kept[name] = state[name]
    return {name: kept[name] for name in state if name in kept}


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchTensor(Tensor):
    """A weight of the policy in its place on the device; ``data`` is a torch tensor, and it is sent as ``dtype``."""

    data: torch.Tensor  # type: ignore[assignment]

    def copy_to(self, memory: np.ndarray) -> None:
        """Cast and copy the tensor from its device in one operation."""
        torch.from_numpy(memory).view(getattr(torch, self.dtype)).view(self.shape).copy_(self.data)


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportedWeight:
    """A weight of the model, or this rank's part of it, that is exported as ``dtype`` with ``pair`` merged into it."""

    weight: torch.Tensor
    dtype: torch.dtype
    pair: Pair | None = None

    @classmethod
    def of(cls, weight: torch.Tensor, dtype: torch.dtype, pair: Pair | None = None) -> ExportedWeight:
        """Return the export of a weight. Floating-point weights are cast to ``dtype``; others keep their dtype."""
        return cls(weight=weight, dtype=dtype if weight.is_floating_point() else weight.dtype, pair=pair)

    def info(self, name: str) -> TensorInfo:
        """Return the entry of the whole tensor in a manifest."""
        return TensorInfo(name=name, dtype=str(self.dtype).removeprefix("torch."), shape=tuple(self.weight.shape))

    @torch.no_grad()
    def whole(self, *, keep: bool) -> torch.Tensor:
        """Return the whole tensor, in any precision; collective if it is divided. Without ``keep`` this rank keeps nothing of it.

        An adapter is added in the precision of the weight. A tensor that is neither divided nor merged shares the memory of the model, but
        not the parameter object: the parameter may move to the host once its bucket was read.
        """
        if self.pair is None:
            whole = _gathered(self.weight.to(self.dtype) if isinstance(self.weight, DTensor) else self.weight)
        else:
            parts = [_gathered(part) for part in (self.weight, self.pair.low, self.pair.high)]
            whole = self.pair.merged(*parts) if keep else parts[0]
        return whole.detach() if keep else whole.new_empty(0)


def exported_weights(model: PreTrainedModel, dtype: torch.dtype, adapters: Adapters | None = None) -> dict[str, ExportedWeight]:
    """Return every weight of the policy, with adapters merged."""
    pairs = adapters.pairs() if adapters is not None else {}
    return {name: ExportedWeight.of(weight, dtype, pairs.get(name)) for name, weight in named_weights(model).items()}


def adapter_weights(adapters: Adapters, dtype: torch.dtype) -> dict[str, ExportedWeight]:
    """Return only the matrices of the adapters, by PEFT's names."""
    return {name: ExportedWeight.of(matrix, dtype) for name, matrix in adapters.tensors().items()}


class TorchSource(WeightSource):
    """The current weights, whole on rank 0. Only divided or merged tensors are copied, one bucket at a time."""

    def __init__(
        self,
        weights: Mapping[str, ExportedWeight],
        rank: int = 0,
        kind: WeightsKind = WeightsKind.FULL,
        extra: Mapping[str, str] | None = None,
    ) -> None:
        self._weights, self._rank = weights, rank
        self._kind, self._extra = kind, extra or {}
        self._divided = any(isinstance(leaving.weight, DTensor) for leaving in weights.values())

    def manifest(self) -> WeightsManifest:
        """See WeightSource."""
        infos = tuple(leaving.info(name) for name, leaving in self._weights.items())
        return WeightsManifest(tensors=infos, kind=self._kind, extra=self._extra)

    def buckets(self, max_bytes: int) -> Iterator[dict[str, Tensor]]:
        """See WeightSource."""
        infos, keep = self.manifest().tensors, self._rank == 0 or not self._divided
        for places in cut_into_buckets([info.nbytes for info in infos], max_bytes):
            bucket: dict[str, Tensor] = {}
            for info in infos[places.start : places.stop]:
                whole = self._weights[info.name].whole(keep=keep)
                if keep:
                    bucket[info.name] = TorchTensor(dtype=info.dtype, shape=info.shape, data=whole)
            yield bucket


def stored(weights: Mapping[str, ExportedWeight], *, keep: bool) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint in host memory; collective if the model is divided. Without ``keep`` this rank keeps nothing of
    them."""
    state: dict[str, torch.Tensor] = {}
    for name, leaving in weights.items():
        whole = leaving.whole(keep=keep)
        if keep:
            state[name] = whole.to(device="cpu", dtype=leaving.dtype)
    return state


def save_adapters(adapters: Adapters, folder: Path, state: Mapping[str, torch.Tensor]) -> None:
    """Write PEFT's two files from ``state``, which ``stored`` returned."""
    folder.mkdir()
    (folder / "adapter_config.json").write_text(adapters.config_text(), encoding="utf-8")
    save_file(
        {name: matrix.contiguous() for name, matrix in state.items()}, folder / "adapter_model.safetensors", metadata={"format": "pt"}
    )


def _gathered(part: torch.Tensor) -> torch.Tensor:
    return part.full_tensor() if isinstance(part, DTensor) else part
