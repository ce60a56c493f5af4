"""The division of one model between the trainer ranks, and the layouts that ColossalAI refuses. Imports no torch."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rlcore.api import ConfigError, TrainingContext

__all__ = ["ColossalLayout", "layout_problem", "model_problem"]

DIVIDED = ("llama", "mistral", "qwen2")
"""Model types that ranks can share. For other types ColossalAI keeps queries, keys and values in one tensor, and its stages of gpt2, opt
and cohere fail on a CPU."""


def model_problem(config: Mapping[str, Any], *, tensor: int, pipeline: int) -> str:
    """Return half a sentence on why ranks cannot share the model of this ``config.json``, and what to type; "" if they can."""
    if tensor == 1 and pipeline == 1:
        return ""
    kind = config.get("model_type")
    if kind not in DIVIDED:
        return f"the colossalai backend divides {', '.join(DIVIDED)} by -tp and -pp, but not {kind!r}; use -zero, or --trainer torch"
    layers = config.get("num_hidden_layers")
    if isinstance(layers, int) and pipeline > layers:
        return f"it has {layers} layers, which are fewer than -pp {pipeline}; type -pp {layers} or less"
    counted = {name: config.get(name) for name in ("num_attention_heads", "num_key_value_heads")}
    counted |= {"vocab_size": config.get("vocab_size")} if kind == "qwen2" else {}  # ColossalAI does not pad the head of qwen2
    for name, count in counted.items():
        if isinstance(count, int) and count % tensor:
            return f"-tp {tensor} does not divide its {name} {count}; type a -tp that does, or use -pp or -zero"
    return ""


def layout_problem(*, world: int, tensor: int, pipeline: int, zero: int, dtype: str, sequence_parallel: str = "none") -> str:
    """Return one sentence, or "" for a layout that ColossalAI has a plugin for."""
    shards = tensor * pipeline
    if world % shards:
        return (
            f"training.tensor_parallel_size {tensor} x training.pipeline_parallel_size {pipeline} does not divide the {world} "
            f"trainer ranks: every copy of the model takes {shards} of them; type -t {shards} or a multiple of it"
        )
    if zero > 2:
        return (
            f"training.zero_stage {zero}: ColossalAI's stage 3 (Gemini) is not offered by the colossalai backend (it needs CUDA); "
            "type -zero 2, or --trainer torch"
        )
    data = world // shards
    if zero > 1 and pipeline > 1 and data > 1:
        return f"training.zero_stage {zero}: with pipeline stages ColossalAI divides by ZeRO 1 only; type -zero 1"
    if zero and shards > 1 and data > 1 and dtype == "float32":
        return (
            f"training.zero_stage {zero}: with -tp or -pp ColossalAI's ZeRO does not support float32 models; type --training-dtype "
            "bfloat16, or -zero 0"
        )
    if sequence_parallel != "none" and (tensor == 1 or pipeline > 1):
        return (
            f"training.options.sequence_parallel {sequence_parallel!r} divides tensors that tensor-parallel ranks otherwise hold whole, "
            'and supports no pipeline stages; type -tp 2 or more and -pp 1, or sequence_parallel = "none"'
        )
    return ""


@dataclass(frozen=True, kw_only=True)
class ColossalLayout:
    """``size`` ranks as a mesh [data, pipeline, tensor], in ColossalAI's numbering: neighbouring ranks are tensor-parallel."""

    size: int = 1
    tensor: int = 1
    pipeline: int = 1
    zero: int = 0

    @classmethod
    def of(cls, context: TrainingContext, sequence_parallel: str = "none") -> ColossalLayout:
        """Return the layout of a run. Raises ConfigError if ``layout_problem`` refuses it, and for axes that this backend lacks."""
        for name, value in (("context_parallel_size", context.context_parallel), ("expert_parallel_size", context.expert_parallel)):
            if value > 1:
                raise ConfigError(f"training.{name} {value}: the colossalai backend divides a model by -tp, -pp and -zero only; use 1")
        problem = layout_problem(
            world=context.world_size,
            tensor=context.tensor_parallel,
            pipeline=context.pipeline_parallel,
            zero=context.zero_stage,
            dtype=context.dtype,
            sequence_parallel=sequence_parallel,
        )
        if problem:
            raise ConfigError(problem)
        return cls(size=context.world_size, tensor=context.tensor_parallel, pipeline=context.pipeline_parallel, zero=context.zero_stage)

    @property
    def data(self) -> int:
        """The number of whole replicas that the ranks hold, which is the number of shares of a batch."""
        return self.size // (self.tensor * self.pipeline)

    def place(self, rank: int) -> tuple[int, int, int]:
        """Return (data, pipeline, tensor) of a rank."""
        return rank // (self.tensor * self.pipeline), rank // self.tensor % self.pipeline, rank % self.tensor

    def stage(self, dtype: str) -> int:
        """Return the stage of ColossalAI's ZeRO.

        It is at least 1 in bfloat16, for the float32 masters. With one replica in float32 it is 0: there is nothing to divide.
        """
        if dtype == "bfloat16":
            return max(1, self.zero if self.data > 1 or self.pipeline == 1 else 1)
        return self.zero if self.data > 1 else 0
