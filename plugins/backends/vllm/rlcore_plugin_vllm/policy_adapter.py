"""The one LoRA adapter of an engine: the policy's, or one without effect. Every request uses its name, so that a request in flight
continues under the adapter that replaces it.

vLLM reads an adapter from a folder in PEFT's format. The folder is in host memory and is removed as soon as every worker has read it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, get_args

import torch
from rlcore_plugin_serving.adapter_rules import adapter_configuration, adapters_without_effect
from safetensors.torch import save_file

from rlcore.api import ConfigError, WeightsError, WeightsManifest
from rlcore_plugin_vllm.driver import Driver
from rlcore_plugin_vllm.vllm_api import MaxLoRARanks

__all__ = ["PolicyAdapter", "room_for"]

_MEMORY = Path("/dev/shm")


def room_for(rank: int) -> int:
    """Return the smallest of vLLM's rank bounds that is at least ``rank``. Raises ConfigError if there is none."""
    bounds = [int(bound) for bound in get_args(MaxLoRARanks)]
    if rank > max(bounds):
        raise ConfigError(f"training.lora_rank {rank}: vLLM supports ranks up to {max(bounds)}; type --lora-rank {max(bounds)}")
    return min(bound for bound in bounds if bound >= rank)


class PolicyAdapter:
    """Swaps the adapter of an engine. ``shapes``: of the model's checkpoint. Raises ConfigError if vLLM takes no adapter over this
    model."""

    def __init__(self, driver: Driver, shapes: Mapping[str, tuple[int, ...]]) -> None:
        self._driver = driver
        refused = "it has no matrix in a layer"
        for tensors in adapters_without_effect(shapes):
            try:
                self._swap(tensors, {"r": 1, "lora_alpha": 1, "target_modules": []})
            except Exception as error:  # the error differs between the ways in which an engine runs
                refused = " ".join(str(error).split())
                continue
            self._none = tensors
            return
        raise ConfigError(f"vLLM accepts no LoRA adapter for this model ({refused}); leave --lora-rank out, or name another --backend")

    def take(self, version: int, tensors: Mapping[str, torch.Tensor], manifest: WeightsManifest) -> None:
        """Serve these matrices in place of the previous ones."""
        try:
            self._swap(tensors, adapter_configuration(version, manifest))
        except (ValueError, RuntimeError, OSError) as error:
            raise WeightsError(f"version {version}: vLLM does not accept the adapter: {' '.join(str(error).split())}") from error

    def leave_out(self) -> None:
        """Serve the weights without an adapter."""
        self._swap(self._none, {"r": 1, "lora_alpha": 1, "target_modules": []})

    def _swap(self, tensors: Mapping[str, torch.Tensor], fields: Mapping[str, Any]) -> None:
        with TemporaryDirectory(prefix="rlcore-adapter-", dir=_MEMORY if _MEMORY.is_dir() else None) as folder:
            save_file(dict(tensors), Path(folder) / "adapter_model.safetensors")
            (Path(folder) / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", **fields}), encoding="utf-8")
            self._driver.swap_adapter(folder)
