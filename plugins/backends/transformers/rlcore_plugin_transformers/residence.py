"""Whether a model's weights are on their device: freed while the engine sleeps, allocated by ``wake``, filled by ``update``.

What a snapshot carries is dropped; what it does not carry (tables such as rotary frequencies) moves to host memory and back, bit for bit.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rlcore.api import RunError

__all__ = ["Residence"]


@dataclass(frozen=True, slots=True)
class _Weight:
    """A parameter or saved buffer of the model, and the shape that it has when the weights are here."""

    tensor: torch.Tensor
    shape: torch.Size


class Residence:
    """The weights of one model on one device. Tensors keep their identity, so that tied weights stay tied.

    >>> residence = Residence(model, torch.device("cuda"))
    >>> residence.leave(); residence.come_back()  # then every weight is to be written, and ``filled`` called
    """

    def __init__(self, model: torch.nn.Module, device: torch.device) -> None:
        self._model = model
        self._device = device
        self._weights: list[_Weight] = []
        self._here = True
        self._full = True
        for tensor in self._carried() if device.type == "cpu" else ():
            # Weights mapped from a file stand at any address, and kernels of the CPU round by alignment: an engine that
            # slept would differ in the last bit from one that never did. On CUDA the allocator aligned them already.
            tensor.data = torch.empty_like(tensor.data).copy_(tensor.data)

    def require_weights(self, doing: str) -> None:
        """RunError where there are no weights to compute with."""
        self.require_device(doing)
        if not self._full:
            raise RunError(f"the engine woke without weights and cannot {doing}; call update(snapshot) first")

    def require_device(self, doing: str) -> None:
        """RunError where the engine sleeps."""
        if not self._here:
            raise RunError(f"the engine sleeps and cannot {doing}; call wake(), then update(snapshot)")

    def filled(self) -> None:
        """A whole snapshot was written."""
        self._full = True

    def leave(self) -> None:
        """Free every weight, really: no tensor keeps the memory, and on CUDA the allocator hands it back to the device."""
        if not self._here:
            return
        self._weights = [_Weight(tensor, tensor.shape) for tensor in self._carried()]
        for weight in self._weights:
            weight.tensor.data = weight.tensor.new_empty(0)
        self._move_tables(torch.device("cpu"))
        self._here = self._full = False
        if self._device.type == "cuda":
            torch.cuda.empty_cache()

    def come_back(self) -> None:
        """Allocate the weights on the device; their values are undefined until a snapshot is written."""
        if self._here:
            return
        for weight in self._weights:
            weight.tensor.data = torch.empty(weight.shape, dtype=weight.tensor.dtype, device=self._device)
        self._move_tables(self._device)
        self._weights, self._here = [], True

    def _carried(self) -> list[torch.Tensor]:
        """Parameters and saved buffers, tied ones once: what a snapshot brings."""
        return list({id(tensor): tensor for tensor in self._model.state_dict(keep_vars=True).values()}.values())

    def _move_tables(self, device: torch.device) -> None:
        weights = {id(weight.tensor) for weight in self._weights}
        for buffer in self._model.buffers():
            if id(buffer) not in weights:
                buffer.data = buffer.data.to(device)
