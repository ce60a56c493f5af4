"""The memory that a device shared by trainer and engine needs, by arithmetic, before anything is loaded. Only JSON and the headers of
the model's files are read. Activations of the trainer, and fragmentation in allocators, are not counted."""

from __future__ import annotations

import json
import math
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from rlcore_plugin_serving.checkpoint import read_shapes

from rlcore.api import RlcoreError

__all__ = ["DeviceMemory", "KnownTrainer", "memory_problem", "memory_remark"]

GIB = 1 << 30
CUDA = 1.2 * GIB
"""Of two processes with one CUDA context each: an assumption."""
UTILIZATION = 0.92
"""The share of the device that vLLM takes by default (config/cache.py of 0.32)."""
_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTrainer:
    """Bytes per parameter. ``sleeps``: it keeps nothing on the device while the engine generates."""

    weights: int = 4
    gradients: int = 4
    optimizer: int = 8
    sleeps: bool = True


TRAINERS: Mapping[str, KnownTrainer] = {"torch": KnownTrainer()}
"""By the name of the training backend. Another backend counts as AdamW in float32 that sleeps, the least that it may need."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """The memory of the device and of its users, in bytes.

    ``cache``: the rest of the engine's share, for keys and values; ``token``: the bytes of one token's keys and values. ``answer``: the
    longest context and answer in tokens. ``reference``: the model that KL is measured against, 0 if there is none.
    """

    total: float
    trainer: KnownTrainer
    trainer_name: str
    parameters: int
    reference: int
    engine_weights: float
    engine: float
    reserved: float
    cache: float
    token: float
    answer: int

    @property
    def resident(self) -> float:
        """The trainer's bytes while the engine generates."""
        known = self.trainer
        return 0 if known.sleeps else self.parameters * (known.weights + known.optimizer) + self.reference

    @property
    def generating(self) -> float:
        """The peak of generation, including the start, when the trainer has no optimizer yet and the engine requests its share."""
        start = self.parameters * self.trainer.weights + self.reference + self.reserved
        return CUDA + max(start, self.resident + self.engine)

    @property
    def training(self) -> float:
        """The least that an update needs."""
        known = self.trainer
        return CUDA + self.parameters * (known.weights + known.gradients + known.optimizer) + self.reference

    def parts(self) -> str:
        """Return a description of each part, in GiB."""
        known, size = self.trainer, self.parameters
        reference = f", reference model {_gib(self.reference)}" if self.reference else ""
        stays = "gives its memory back meanwhile" if known.sleeps else f"keeps {_gib(self.resident)} of it meanwhile"
        return (
            f"engine {_gib(self.engine)} (weights {_gib(self.engine_weights)}, keys and values {_gib(max(self.cache, 0))}), trainer "
            f"{self.trainer_name} weights {_gib(size * known.weights)}, gradients {_gib(size * known.gradients)}, optimizer "
            f"{_gib(size * known.optimizer)}{reference} ({stays}), CUDA {_gib(CUDA)}"
        )


def memory_problem(config: Any) -> str:
    """Return a sentence if the device of a colocated run cannot hold both roles alternately.

    Returns "" if it can, or if too little is known.
    """
    if problem := _share_problem(config):
        return problem
    memory = _memory_of(config)
    if isinstance(memory, str):
        return ""
    device = f"--placement colocated: the device has {_gib(memory.total)} GiB"
    if memory.training > memory.total:
        return (
            f"{device}, but an update needs {_gib(memory.training)} without its activations: {memory.parts()}; take a smaller model or "
            "another training backend"
        )
    most = (memory.total - CUDA - max(memory.resident, memory.parameters * memory.trainer.weights + memory.reference)) / memory.total
    least = (memory.engine_weights + memory.token * memory.answer) / memory.total
    share = math.floor(most * 100) / 100
    fits = "take a smaller model, or --placement split"
    if share >= least:
        bytes_of_cache = " and a smaller kv_cache_memory_bytes" if memory.engine != memory.reserved else ""
        fits = f"set gpu_memory_utilization = {share:g} or less in [inference.options.engine]{bytes_of_cache}"
    if memory.generating > memory.total:
        return f"{device}, but generation needs {_gib(memory.generating)}: {memory.parts()}; {fits}"
    if memory.cache < memory.token * memory.answer:
        return (
            f"{device}, and the engine's share leaves {_gib(max(memory.cache, 0))} for keys and values, but one answer of "
            f"{memory.answer} tokens needs {_gib(memory.token * memory.answer)}: {memory.parts()}; "
            f"{fits if share < least else 'raise gpu_memory_utilization in [inference.options.engine], or kv_cache_memory_bytes'}"
        )
    return ""


def _share_problem(config: Any) -> str:
    """Return a sentence if vLLM's memory share is not valid. vLLM checks it only when the engine is created, and the sum needs a number."""
    share = config.inference.options.get("engine", {}).get("gpu_memory_utilization", UTILIZATION)
    if isinstance(share, int | float) and not isinstance(share, bool) and 0 < share <= 1:
        return ""
    return f"inference.options.engine.gpu_memory_utilization is {share!r}; it is a share of the device's memory, above 0 and at most 1"


def memory_remark(config: Any) -> str:
    """Return the same sum for a run that fits, or why it is not known; "" for a run that shares no device."""
    memory = _memory_of(config)
    if isinstance(memory, str):
        return memory
    return (
        f"one device for both, by arithmetic, in GiB: {memory.parts()}; while it generates {_gib(memory.generating)}, while it trains "
        f"{_gib(memory.training)} and activations, of {_gib(memory.total)}; room for {int(memory.cache // (memory.token * memory.answer))} "
        f"answers of {memory.answer} tokens at once"
    )


def _memory_of(config: Any) -> DeviceMemory | str:
    """Return the sum; a sentence if it is not known; "" if the run shares no GPU with this engine."""
    inference, training = config.inference, config.training
    if config.run.placement != "colocated" or inference.device == "cpu":
        return ""
    options = inference.options
    total = options.get("device_memory_gib")
    total = total * GIB if total else _asked_of_driver()
    if total is None:
        return (
            "the memory of the device is not known here, so rlcore has not checked that it holds both roles; set device_memory_gib in "
            "[inference.options]"
        )
    try:
        folder = Path(config.model.model)
        parameters = sum(math.prod(shape) for shape in read_shapes(folder).values())
        shape = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        token = _cache_bytes(shape.get("text_config") or shape) * _BYTES[inference.dtype]
    except (OSError, ValueError, KeyError, TypeError, RlcoreError) as error:
        return f"the memory that the device needs is not known before the model {config.model.model} is loaded ({error})"
    devices = inference.producer_tensor_parallel_size
    weights, reserved = (
        parameters * _BYTES[inference.dtype] / devices,
        float(options.get("engine", {}).get("gpu_memory_utilization", UTILIZATION)) * total,
    )
    given = options.get("kv_cache_memory_bytes")
    return DeviceMemory(
        total=total,
        trainer=TRAINERS.get(training.name.lower(), KnownTrainer()),
        trainer_name=training.name,
        parameters=parameters,
        reference=4 * parameters if config.algorithm.kl_coeff else 0,
        engine_weights=weights,
        engine=weights + given if given else reserved,
        reserved=reserved,
        cache=given or reserved - weights,
        token=token / devices,
        answer=config.data.max_prompt_tokens + config.sampling.max_new_tokens,
    )


def _cache_bytes(shape: Mapping[str, Any]) -> int:
    """Return the count of numbers in the keys and values of one token, by a model's ``config.json``."""
    heads = shape["num_attention_heads"]
    width = shape.get("head_dim") or shape["hidden_size"] // heads
    return 2 * int(shape["num_hidden_layers"]) * int(shape.get("num_key_value_heads") or heads) * int(width)


@lru_cache
def _asked_of_driver() -> float | None:
    """Return the bytes of the smallest device here; None if there is none.

    This runs nvidia-smi, because a query through CUDA would leave a context in this process.
    """
    command = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True).stdout
        return min(float(line) for line in said.splitlines() if line.strip()) * (1 << 20)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None


def _gib(size: float) -> str:
    return f"{size / GIB:.1f}" if size >= GIB / 10 else f"{size / GIB:.2g}"
