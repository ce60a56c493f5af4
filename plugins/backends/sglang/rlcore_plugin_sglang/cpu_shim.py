"""SGLang's engine on a CPU without SGLang's compiled kernels: what is put in their place, in the processes of the engine alone.

Its engine, its scheduler and its models are what they are; attention and sampling are those that it writes in torch. Nothing here is used
on a GPU. Read in SGLang 0.5.23.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

__all__ = ["murmur_hash32", "prepare_cpu"]

_LOW = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_kept: list[torch.library.Library] = []
"""Definitions of operators, which go with their library."""


def prepare_cpu() -> None:
    """Put everything in its place, before sglang is imported. Twice is once."""
    if _kept:
        return
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # small functions too need a compiler and minutes
    sys.path.insert(0, str(Path(__file__).with_name("cpu_stubs")))
    _declare_operators()
    _adapt_sglang()


def _declare_operators() -> None:
    """torchvision's, whose build for CUDA registers shapes of operators that it has no code for here; and the hash of SGLang's draws."""
    for name in ("nms", "qnms"):
        vision = torch.library.Library("torchvision", "FRAGMENT")
        vision.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _kept.append(vision)
    kernels = torch.library.Library("sgl_kernel", "FRAGMENT")
    kernels.define("murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor columns) -> Tensor")
    kernels.impl("murmur_hash32_cpu", murmur_hash32, "CPU")
    _kept.append(kernels)


def _adapt_sglang() -> None:
    """Draws by seed are offered for attention on GPUs only; threads are bound to nodes of memory, of which two shards need two; adapters are
    copied through pinned memory."""
    from sglang.srt import batch_invariant_ops
    from sglang.srt.lora import layers, lora
    from sglang.srt.lora.backend import torch_backend
    from sglang.srt.server_args import add_deterministic_attention_backend_choices
    from sglang.srt.utils import numa_utils

    add_deterministic_attention_backend_choices(["torch_native"])
    batch_invariant_ops.enable_batch_invariant_mode = lambda *_, **__: None  # Triton kernels; a row's sums do not see the batch here
    numa_utils.init_threads_binding = lambda **_: None  # rlcore divides the threads
    for module in (layers, lora, torch_backend):
        module.torch = _WithoutPinning(torch)
    torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]


class _WithoutPinning:
    """The module torch whose functions forget ``pin_memory``."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return _unpinned(found) if name in ("arange", "empty", "tensor", "zeros") else found


def _unpinned(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, pin_memory: bool = False, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def murmur_hash32(seed: torch.Tensor, positions: torch.Tensor, columns: torch.Tensor) -> torch.Tensor:
    """MurmurHash3 (x86, 32 bit; A. Appleby, public domain), seed 0, of 16 bytes: a row's ``seed`` (uint64[n], low word first), its
    ``positions`` (int[n]) and a column (``columns``, int[m]), as uint32[n, m]. SGLang adds Gumbel noise made of it to log probabilities."""
    seeds = seed.view(torch.int64)
    state = torch.zeros(len(seeds), 1, dtype=torch.int64)
    for block in (seeds[:, None], (seeds >> 32)[:, None], positions.long()[:, None], columns.long()[None]):
        word = _times(_rotated(_times(block & _LOW, _C1), 15), _C2)
        state = (_times(_rotated(state ^ word, 13), 5) + 0xE6546B64) & _LOW
    state = state ^ 16
    state = _times(state ^ (state >> 16), 0x85EBCA6B)
    state = _times(state ^ (state >> 13), 0xC2B2AE35)
    return (state ^ (state >> 16)).to(torch.uint32)


def _rotated(word: torch.Tensor, bits: int) -> torch.Tensor:
    return ((word << bits) | (word >> (32 - bits))) & _LOW


def _times(word: torch.Tensor, factor: int) -> torch.Tensor:
    """The low 32 bits of a product, by halves: 64 signed bits do not hold it whole."""
    return ((((word >> 16) * factor) & 0xFFFF) << 16) + (word & 0xFFFF) * factor & _LOW
