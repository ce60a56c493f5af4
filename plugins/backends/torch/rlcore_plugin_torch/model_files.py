"""The files of a Hugging Face checkpoint: one file for a small model, otherwise several parts, which the ranks gather and write between
them.

In host memory a rank holds only the parts that it writes. A part always holds whole layers, because transformers may load one tensor (the
experts of a layer) from several stored tensors.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import PreTrainedModel
from transformers.core_model_loading import revert_weight_conversion

from rlcore.api.weights import cut_into_buckets
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.weights import ExportedWeight, stored

__all__ = ["save_checkpoint"]

PART_BYTES = 4 << 30
"""A part holds as many layers as fit."""
_LAYER = re.compile(r".*?\.\d+(?=\.)")
_FILE = "model.safetensors"


def save_checkpoint(
    model: PreTrainedModel, folder: Path, dtype: torch.dtype, weights: Mapping[str, ExportedWeight], ranks: TorchRanks
) -> None:
    """Write ``weights`` in their ``dtype``, with ``config.json``, into a folder that all ranks see.

    Collective: no rank returns before all files are written, and an error on one rank is raised on all.
    """
    parts = _parts(weights)
    with ranks.together("gathering the model"):
        found = [stored(_pick(weights, names), keep=number % ranks.size == ranks.rank) for number, names in enumerate(parts)]

    def write() -> dict[str, float]:
        places: dict[str, float] = {}
        for number, state in enumerate(found):
            if number % ranks.size == ranks.rank:
                places |= dict.fromkeys(_write(model, folder / _aside(number), dtype, state, beside=number == 0), number)
        return places

    places = {name: int(number) for answer in ranks.agreed(write, "saving the model") for name, number in answer.items()}
    ranks.write(lambda: _name(folder, places, len(parts)))


def _parts(weights: Mapping[str, ExportedWeight]) -> list[list[str]]:
    """Return the names of the tensors of each file, in the order of the model; the same on every rank."""
    layers = [list(names) for _, names in groupby(weights, _layer_of)]
    sizes = [sum(weights[name].info(name).nbytes for name in names) for names in layers]
    return [[name for layer in layers[places.start : places.stop] for name in layer] for places in cut_into_buckets(sizes, PART_BYTES)]


def _layer_of(name: str) -> str:
    """Return the layer whose tensors must be in one file, or the tensor's own name if it belongs to no layer."""
    found = _LAYER.match(name)
    return found[0] if found else name


def _pick(weights: Mapping[str, ExportedWeight], names: Sequence[str]) -> dict[str, ExportedWeight]:
    return {name: weights[name] for name in names}


def _aside(number: int) -> str:
    """Return a name that ``save_pretrained`` does not mistake for a part of an older checkpoint, which it would remove."""
    return f"part-{number}.safetensors"


def _name(folder: Path, places: Mapping[str, int], parts: int) -> None:
    """Give the parts their final names, and write their index."""
    names = [f"model-{number + 1:05}-of-{parts:05}.safetensors" for number in range(parts)] if parts > 1 else [_FILE]
    for number, name in enumerate(names):
        (folder / _aside(number)).rename(folder / name)
    if parts > 1:
        total = sum(_tensor_bytes(folder / name) for name in names)
        index = {"metadata": {"total_size": total}, "weight_map": {name: names[number] for name, number in places.items()}}
        (folder / f"{_FILE}.index.json").write_text(json.dumps(index, indent=2, sort_keys=True) + "\n", encoding="utf-8")


def _tensor_bytes(file: Path) -> int:
    """Return the size of a safetensors file without its header, whose length is in the first 8 bytes."""
    with file.open("rb") as stream:
        return file.stat().st_size - 8 - int.from_bytes(stream.read(8), "little")


def _write(model: PreTrainedModel, file: Path, dtype: torch.dtype, state: dict[str, torch.Tensor], *, beside: bool) -> list[str]:
    """Write one file under the tensor names that the hub uses, and return these names.

    ``beside``: also write the other files of the folder.
    """
    if beside:
        model.save_pretrained(file.parent, state_dict=dict(state), max_shard_size=f"{1 << 20}GB")
        (file.parent / _FILE).rename(file)
        _tell_dtype(file.parent / "config.json", dtype)
    else:
        left_out = model._keys_to_ignore_on_save or ()
        named = revert_weight_conversion(model, {name: tensor for name, tensor in state.items() if name not in left_out})
        file.parent.mkdir(parents=True, exist_ok=True)
        save_file({name: tensor.contiguous() for name, tensor in named.items()}, file, metadata={"format": "pt"})
    with safe_open(file, "pt") as written:
        return list(written.keys())


def _tell_dtype(path: Path, dtype: torch.dtype) -> None:
    """Correct the dtype in ``config.json``: ``save_pretrained`` records that of the model in memory, which holds the master weights."""
    config = json.loads(path.read_text(encoding="utf-8"))
    config["dtype"] = str(dtype).removeprefix("torch.")
    path.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
