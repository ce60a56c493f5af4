"""SGLang's engine on a CPU without SGLang's compiled kernels: the replacements for them, only in the processes of the engine.

Its engine, its scheduler and its models are unchanged; attention and sampling are SGLang's own versions in torch. None of this is used on a
GPU. Read in SGLang 0.5.23.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

__all__ = ["murmur_hash32", "prepare_cpu"]

_LOW = 0xFFFFFFFF
_C1, _C2 = 0xCC9E2D51, 0x1B873593
_kept: list[torch.library.Library] = []
"""Definitions of operators, which are removed with their library."""


def prepare_cpu() -> None:
    """Install all replacements, before sglang is imported. A second call does nothing."""
    if _kept:
        return
    os.environ.setdefault("SGLANG_USE_CPU_ENGINE", "1")
    os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")  # even small functions would need a compiler and minutes
    import transformers.utils

    transformers.utils.is_torchvision_available()  # it is not, and the answer is cached: after the next line it would seem to be
    sys.meta_path.append(_Stubs())
    _declare_hash()
    _adapt_sglang()


class _Stubs(MetaPathFinder, Loader):
    """Stub modules of packages that SGLang imports but a text model does not need here.

    These are SGLang's kernels, for which it has code in torch; torchvision, whose build for CUDA does not work with torch for the CPU; and
    the audio package of its server. A stub has any name that is asked for, and raises an error when it is called.
    """

    packages = ("torchvision", "soundfile")

    def find_spec(self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find these packages with all their modules, but only the top module of the kernels: SGLang handles absent modules of the
        kernels itself."""
        found = fullname == "sgl_kernel" or fullname.partition(".")[0] in self.packages
        return ModuleSpec(fullname, self, is_package=fullname != "sgl_kernel") if found else None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module any name that is asked for."""

        def named(name: str) -> type:
            if name.startswith("__"):
                raise AttributeError(name)

            def refuse(*_: object, **__: object) -> None:
                raise NotImplementedError(f"SGLang asks for {module.__name__}.{name}, which this environment does not have")

            return _Absent(name, (), {"__new__": refuse})

        module.__getattr__ = named  # type: ignore[method-assign]


class _Absent(type):
    """A class that has any attribute, because some attributes are read when a module is imported."""

    def __getattr__(cls, name: str) -> str:
        if name.startswith("__"):
            raise AttributeError(name)
        return name


def _declare_hash() -> None:
    """Register the hash of SGLang's draws, which is one of its kernels."""
    kernels = torch.library.Library("sgl_kernel", "FRAGMENT")
    kernels.define("murmur_hash32_cpu(Tensor seed, Tensor positions, Tensor columns) -> Tensor")
    kernels.impl("murmur_hash32_cpu", murmur_hash32, "CPU")
    _kept.append(kernels)


def _adapt_sglang() -> None:
    """Adapt SGLang to a CPU.

    SGLang offers seeded draws for attention on GPUs only. It binds threads to nodes of memory, of which two shards need two. It copies
    adapters through pinned memory.
    """
    from sglang.srt import batch_invariant_ops
    from sglang.srt.lora import layers, lora
    from sglang.srt.lora.backend import torch_backend
    from sglang.srt.server_args import add_deterministic_attention_backend_choices
    from sglang.srt.utils import numa_utils

    add_deterministic_attention_backend_choices(["torch_native"])
    batch_invariant_ops.enable_batch_invariant_mode = lambda *_, **__: None  # Triton kernels; here a row's sums do not depend on the batch
    numa_utils.init_threads_binding = lambda **_: None  # rlcore divides the threads
    for module in (layers, lora, torch_backend):
        module.torch = _WithoutPinning(torch)
    torch.Tensor.pin_memory = lambda tensor, *_: tensor  # type: ignore[method-assign]


class _WithoutPinning:
    """The module torch, with functions that ignore ``pin_memory``."""

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
    """Return the hash uint32[n, m] from which SGLang makes the Gumbel noise that it adds to log probabilities.

    MurmurHash3 (x86, 32 bit; A. Appleby, public domain), seed 0, of 16 bytes: a row's ``seed`` (uint64[n], low word first), its
    ``positions`` (int[n]) and a column (``columns``, int[m]).
    """
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
    """Return the low 32 bits of a product, by halves: 64 signed bits cannot hold the whole product."""
    return ((((word >> 16) * factor) & 0xFFFF) << 16) + (word & 0xFFFF) * factor & _LOW
