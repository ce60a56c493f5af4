"""Keep weights, moments and the reference model in host memory while the device does not need them.

On a CPU nothing moves: its memory is the host's. Parameters keep their identity, so that optimizers and tied modules still hold them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import torch

__all__ = ["HostMoments", "move_module", "move_moments", "on_device", "to_host"]

_PORTION = 1 << 28
"""Bytes of moments on the device at a time while they are streamed: enough to use the full bus bandwidth, and little compared with the
weights."""


class Stepping(Protocol):
    """The part of ``torch.optim.Optimizer`` that this module uses."""

    state: Any
    param_groups: Any

    def step(self) -> Any:
        """Step all parameters that have a gradient."""


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in host memory, or the tensor itself if it is already there.

    A tensor from a device is copied to pinned memory, so that the copy back runs at the speed of the bus. A sharded tensor is not pinned.
    """
    if tensor.device.type == "cpu":
        return tensor
    if _sharded(tensor):  # the shard moves; the mesh stays that of the device
        return tensor.to("cpu")
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True).copy_(tensor)


def move_module(module: torch.nn.Module, device: torch.device) -> None:
    """Move parameters, gradients and buffers to the device, or to host memory for ``cpu``; sharded parameters too."""
    if device.type == "cpu" and not any(map(_sharded, module.parameters())):
        for tensor in (*module.parameters(), *module.buffers()):
            tensor.data = to_host(tensor.data)
            if tensor.grad is not None:
                tensor.grad.data = to_host(tensor.grad.data)
    else:
        module.to(device)  # a module that is sharded has its own way to move


def move_moments(adam: Stepping, parameters: Iterable[torch.nn.Parameter], device: torch.device) -> None:
    """Move the moments of these parameters to the device, or to host memory for ``cpu``. Step counts, which have no axes, stay where the
    optimizer keeps them."""
    for parameter in parameters:
        state = adam.state.get(parameter, {})
        for name, value in state.items():
            if isinstance(value, torch.Tensor) and value.ndim:
                state[name] = to_host(value) if device.type == "cpu" else value.to(device, non_blocking=True)


@contextmanager
def on_device(module: torch.nn.Module, device: torch.device, *, offload: bool) -> Iterator[None]:
    """Run the body with the module on the device. With ``offload`` the module is in host memory before and after."""
    if not offload:
        yield
        return
    move_module(module, device)
    try:
        yield
    finally:
        move_module(module, torch.device("cpu"))


class HostMoments:
    """Steps of an optimizer whose moments are in host memory.

    The parameters step in portions: their moments move to the device, the optimizer steps, and the moments move back. The step is the
    optimizer's own, so the result is the same bit for bit as with all moments on the device. ``portion``: bytes of moments at a time.
    Source of the idea: ZeRO-Offload (arXiv 2101.06840), with the arithmetic left on the device.
    """

    def __init__(self, adam: Stepping, portion: int = _PORTION) -> None:
        self._adam = adam
        self._portion = portion

    def step(self) -> None:
        """Take one step over all parameters that have a gradient."""
        groups = self._adam.param_groups
        try:
            for group in groups:
                for some in self._portions(group["params"]):
                    self._adam.param_groups = [{**group, "params": some}]
                    move_moments(self._adam, some, some[0].device)
                    self._adam.step()
                    move_moments(self._adam, some, torch.device("cpu"))
        finally:
            self._adam.param_groups = groups

    def _portions(self, parameters: list[torch.nn.Parameter]) -> Iterator[list[torch.nn.Parameter]]:
        some: list[torch.nn.Parameter] = []
        held = 0
        for parameter in parameters:
            if parameter.grad is None:
                continue
            size = 2 * parameter.numel() * parameter.element_size()
            if some and held + size > self._portion:
                yield some
                some, held = [], 0
            some.append(parameter)
            held += size
        if some:
            yield some


def _sharded(tensor: torch.Tensor) -> bool:
    """Return whether the tensor is a DTensor, without importing that class, which a single device does not need."""
    return hasattr(tensor, "to_local")
