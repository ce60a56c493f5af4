"""The one LoRA adapter of an engine: the policy's, or one that changes nothing. Every request runs under its name, so that a request in
flight goes on under the adapter that takes its place.

vLLM reads an adapter from a folder in PEFT's format. The folder lies in the memory of the host and is removed as soon as every worker has
read it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from safetensors.torch import save_file

from rlcore.api import ConfigError, WeightsError, WeightsManifest
from rlcore_plugin_vllm.driver import Driver
from rlcore_plugin_vllm.vllm_api import MaxLoRARanks

__all__ = ["PolicyAdapter", "check_adapter", "room_for"]

_PREFIX = "base_model.model."
_FLOATS = {"float64", "float32", "float16", "bfloat16"}
_MEMORY = Path("/dev/shm")


def room_for(rank: int) -> int:
    """The smallest of vLLM's bounds of ranks that holds it; ConfigError if none does."""
    bounds = [int(bound) for bound in get_args(MaxLoRARanks)]
    if rank > max(bounds):
        raise ConfigError(f"training.lora_rank {rank}: vLLM serves adapters of rank {max(bounds)} at most; type --lora-rank {max(bounds)}")
    return min(bound for bound in bounds if bound >= rank)


def check_adapter(version: int, manifest: WeightsManifest, shapes: Mapping[str, tuple[int, ...]], *, model: str, most: int) -> None:
    """WeightsError, naming the tensor, if the version is not an adapter of rank ``most`` or less over ``model``, which has these shapes."""
    said = f"version {version} is an adapter"
    if (base := manifest.extra.get("base")) != model:
        raise WeightsError(
            f"{said} over model {base!r}, and the engine was loaded from {model!r}; its trainer must hand out merged weights"
        )
    rank = _configuration(version, manifest)["r"]
    if rank > most:
        raise WeightsError(f"{said} of rank {rank}, and the engine was made for rank {most}")
    sent = {info.name: info for info in manifest.tensors}
    for name, info in sent.items():
        weight, letter = name.removeprefix(_PREFIX).removesuffix(".weight").rpartition(".lora_")[::2]
        shape = shapes.get(f"{weight}.weight", ())
        if len(shape) != 2 or letter not in ("A", "B") or not name.startswith(_PREFIX):
            raise WeightsError(f"{said} with tensor {name!r}, which belongs to no matrix of the model")
        due = (rank, shape[1]) if letter == "A" else (shape[0], rank)
        if tuple(info.shape) != due or info.dtype not in _FLOATS:
            raise WeightsError(f"{said} whose tensor {name!r} is {info.dtype} {list(info.shape)}; a float of {list(due)} is due")
        other = f"{_PREFIX}{weight}.lora_{'B' if letter == 'A' else 'A'}.weight"
        if other not in sent:
            raise WeightsError(f"{said} that brings {name!r} and lacks {other!r}")


def _configuration(version: int, manifest: WeightsManifest) -> dict[str, Any]:
    text = manifest.extra.get("config", "")
    try:
        fields = json.loads(text)
        if isinstance(fields["r"], int):
            return dict(fields)
    except (ValueError, KeyError, TypeError):
        pass
    raise WeightsError(f"version {version} is an adapter whose extra 'config' is no adapter_config.json of PEFT: {text[:80]!r}")


class PolicyAdapter:
    """Swaps the adapter of an engine. ``shapes``: of the model's checkpoint. ConfigError if vLLM takes no adapter over this model."""

    def __init__(self, driver: Driver, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._driver = driver
        refused = "it has no matrix in a layer"
        for tensors in _without_effect(shapes):
            try:
                self._swap(tensors, {"r": 1, "lora_alpha": 1, "target_modules": []})
            except Exception as error:  # another error in each way in which an engine runs
                refused = " ".join(str(error).split())
                continue
            self._none = tensors
            return
        raise ConfigError(f"vLLM takes no LoRA adapter over this model ({refused}); leave --lora-rank out, or name another --backend")

    def take(self, version: int, tensors: Mapping[str, torch.Tensor], manifest: WeightsManifest) -> None:
        """Serve these matrices in the place of those before."""
        try:
            self._swap(tensors, _configuration(version, manifest))
        except (ValueError, RuntimeError, OSError) as error:
            raise WeightsError(f"version {version}: vLLM does not take the adapter: {' '.join(str(error).split())}") from error

    def leave_out(self) -> None:
        """Serve the weights as they are."""
        self._swap(self._none, {"r": 1, "lora_alpha": 1, "target_modules": []})

    def _swap(self, tensors: Mapping[str, torch.Tensor], fields: Mapping[str, Any]) -> None:
        with TemporaryDirectory(prefix="rlcore-adapter-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            save_file(dict(tensors), Path(folder) / "adapter_model.safetensors")
            (Path(folder) / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **fields}), encoding="utf-8")
            self._driver.swap_adapter(folder)


def _without_effect(shapes: Mapping[str, tuple[int, ...]]) -> Iterator[dict[str, torch.Tensor]]:
    """Adapters of rank 1 and zeros, over one matrix of each name that the layers have: vLLM takes those over layers that it knows."""
    tried = set()
    for name, shape in sorted(shapes.items(), key=lambda item: not item[0].endswith("_proj.weight")):
        stem, end = name.removesuffix(".weight"), name.split(".")[-2:]
        in_layer = any(part.isdigit() for part in name.split("."))
        if len(shape) != 2 or not in_layer or end[-1] != "weight" or end[0] in tried:
            continue
        tried.add(end[0])
        rows, columns = shape
        yield {f"{_PREFIX}{stem}.lora_A.weight": torch.zeros(1, columns), f"{_PREFIX}{stem}.lora_B.weight": torch.zeros(rows, 1)}
