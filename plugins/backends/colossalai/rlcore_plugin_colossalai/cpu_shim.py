"""CPU replacements for the CUDA features that ColossalAI 0.5.0 requires. This is the only module that touches its internals, and only on a
CPU.

ColossalAI's CPU accelerator raises RuntimeError from methods whose answer on a CPU is simple: there is one device, no stream, and nothing
to wait for. Two checks accept CUDA only: that of the ZeRO optimizer for its device, and that of point-to-point calls for NCCL.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch

__all__ = ["activate"]


class _Nothing:
    """A stream or an event of a device that has none."""

    def wait_stream(self, stream: object) -> None:
        """Do nothing: no other stream runs."""

    def wait_event(self, event: object) -> None:
        """See ``wait_stream``."""

    def record(self, stream: object = None) -> None:
        """See ``wait_stream``."""

    def synchronize(self) -> None:
        """See ``wait_stream``."""


def activate() -> None:
    """Install the replacements, once; with an accelerator nothing is changed."""
    from colossalai.accelerator import get_accelerator

    accelerator = get_accelerator()
    kind = type(accelerator)
    if accelerator.name != "cpu" or getattr(kind, "rlcore_shim", False):
        return
    answers: dict[str, Any] = {
        "current_device": lambda self: 0,
        "get_rng_state": lambda self, device=None: torch.get_rng_state(),
        "set_rng_state": lambda self, state, device=None: torch.set_rng_state(state),
        "manual_seed": lambda self, seed: torch.manual_seed(seed),
        "manual_seed_all": lambda self, seed: torch.manual_seed(seed),
        "synchronize": lambda self, device=None: None,
        "empty_cache": lambda self: None,
        "Stream": lambda self, *arguments, **named: _Nothing(),
        "Event": lambda self, *arguments, **named: _Nothing(),
        "current_stream": lambda self, device=None: _Nothing(),
        "default_stream": lambda self, device=None: _Nothing(),
        "stream": lambda self, stream: nullcontext(),
    }
    for name, answer in answers.items():
        setattr(kind, name, answer)
    kind.rlcore_shim = True
    torch.Tensor.record_stream = lambda self, stream: None  # type: ignore[method-assign, assignment]
    _open_checks()


def _open_checks() -> None:
    from colossalai.booster.plugin import HybridParallelPlugin, LowLevelZeroPlugin, TorchDDPPlugin
    from colossalai.pipeline import p2p
    from colossalai.zero.low_level.low_level_optim import LowLevelZeroOptimizer

    LowLevelZeroOptimizer._sanity_checks = lambda self: None
    for plugin in (TorchDDPPlugin, LowLevelZeroPlugin, HybridParallelPlugin):
        plugin.supported_devices = lambda self: ["cuda", "npu", "cpu"]
    for name in ("_check_for_nccl_hccl_backend", "check_for_nccl_backend"):
        if hasattr(p2p, name):
            setattr(p2p, name, lambda group: False)
