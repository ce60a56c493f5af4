"""The tensors that a version of kind ``adapter`` must contain: PEFT's matrices over the weights that the engine was loaded from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from rlcore.api import WeightsError, WeightsManifest

__all__ = ["adapter_configuration", "adapters_without_effect", "check_adapter"]

_PREFIX = "base_model.model."
_FLOATS = {"float64", "float32", "float16", "bfloat16"}


def check_adapter(version: int, manifest: WeightsManifest, shapes: Mapping[str, tuple[int, ...]], *, model: str, most: int) -> None:
    """Raise WeightsError, which names the tensor, unless the version is an adapter of at most rank ``most`` over ``model``, which has
    these shapes."""
    said = f"version {version} is an adapter"
    if (base := manifest.extra.get("base")) != model:
        raise WeightsError(f"{said} over model {base!r}, but the engine was loaded from {model!r}; its trainer must send merged weights")
    rank = adapter_configuration(version, manifest)["r"]
    if rank > most:
        raise WeightsError(f"{said} of rank {rank}, but the engine was created for rank {most}")
    sent = {info.name: info for info in manifest.tensors}
    for name, info in sent.items():
        weight, letter = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")[::2]
        shape = shapes.get(f"{weight}.weight", ())
        if len(shape) != 2 or letter not in ("A", "B") or not name.startswith(_PREFIX):
            raise WeightsError(f"{said} with tensor {name!r}, which belongs to no matrix of the model")
        due = (rank, shape[1]) if letter == "A" else (shape[0], rank)
        if tuple(info.shape) != due or info.dtype not in _FLOATS:
            raise WeightsError(f"{said} whose tensor {name!r} is {info.dtype} {list(info.shape)}; it must be a float of {list(due)}")
        other = f"{_PREFIX}{weight}.lora_{'B' if letter == 'A' else 'A'}.weight"
        if other not in sent:
            raise WeightsError(f"{said} that has {name!r} but lacks {other!r}")


def adapter_configuration(version: int, manifest: WeightsManifest) -> dict[str, Any]:
    """Return PEFT's adapter_config.json of the version. Raises WeightsError if it has none."""
    text = manifest.extra.get("config", "")
    try:
        fields = json.loads(text)
        if isinstance(fields["r"], int):
            return dict(fields)
    except (ValueError, KeyError, TypeError):
        pass
    raise WeightsError(f"version {version} is an adapter whose extra 'config' is not PEFT's adapter_config.json: {text[:80]!r}")


def adapters_without_effect(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, torch.Tensor]]:
    """Yield adapters of rank 1 and zeros, over one matrix for each name that the layers have: an engine accepts those over layers that
    it knows."""
    tried = set()
    for name, shape in sorted(shapes.items(), key=lambda item: not item[0].endswith("_proj.weight")):
        stem, end = name.removesuffix(".weight"), name.split(".")[-2:]
        in_layer = any(part.isdigit() for part in name.split("."))
        if len(shape) != 2 or not in_layer or end[-1] != "weight" or end[0] in tried:
            continue
        tried.add(end[0])
        rows, columns = shape
        yield {f"{_PREFIX}{stem}.lora_A.weight": torch.zeros(1, columns), f"{_PREFIX}{stem}.lora_B.weight": torch.zeros(rows, 1)}
