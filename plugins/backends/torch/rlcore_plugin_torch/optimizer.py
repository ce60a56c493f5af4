"""AdamW with decoupled weight decay, gradient clipping and the schedule, with a state that can be saved bit for bit."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from rlcore.api import OptimizerSettings, RunError
from rlcore.learning import learning_rate
from rlcore_plugin_torch.clipping import scale, squares
from rlcore_plugin_torch.host_memory import HostMoments, move_moments
from rlcore_plugin_torch.ranks import TorchRanks
from rlcore_plugin_torch.sharding import local

__all__ = ["Optimizer"]


_MOMENTS = ("exp_avg", "exp_avg_sq")


class Optimizer:
    """The optimizer of one model; it counts its steps itself, because the learning rate is a function of the count.

    Biases, norms and other vectors do not decay. Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101),
    algorithm 2.
    """

    def __init__(
        self, model: torch.nn.Module, settings: OptimizerSettings, ranks: TorchRanks | None = None, *, offload: bool = False
    ) -> None:
        """``ranks``: those that hold the other parts of the model, if it is divided.

        ``offload``: moments are in host memory, and on the device only while their parameters step.
        """
        self.settings = settings
        self._ranks = ranks or TorchRanks()
        self.steps = 0
        self._named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        matrices = [parameter for parameter in self._named.values() if parameter.ndim >= 2]
        vectors = [parameter for parameter in self._named.values() if parameter.ndim < 2]
        groups = [
            {"params": alike, "weight_decay": decay}
            for kind, decay in ((matrices, settings.weight_decay), (vectors, 0.0))
            for alike in _by_mesh(kind)
        ]
        self._adam = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)
        self._streamed = HostMoments(self._adam) if offload else None

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that it trains, in the model's order."""
        return list(self._named.values())

    def move(self, device: torch.device) -> None:
        """Move the moments to the device, or to host memory for ``cpu``. Moments that always stay in host memory do not move to the
        device."""
        if self._streamed is None or device.type == "cpu":
            move_moments(self._adam, self.parameters, device)

    def zero_grad(self) -> None:
        """Discard the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self) -> dict[str, float]:
        """Clip, step and discard the gradients.

        Returns ``grad_norm`` before clipping, ``learning_rate``, and ``skipped_steps`` if a gradient was not finite. In that case, and
        without any gradient (the batch has nothing in the loss), weights, moments and schedule do not change.
        """
        rate = learning_rate(self.settings, self.steps)
        norm = self._clip()
        taken = norm is not None and math.isfinite(norm)
        if taken:
            for group in self._adam.param_groups:
                group["lr"] = rate
            (self._streamed or self._adam).step()
            self.steps += 1
        self.zero_grad()
        skipped = {} if taken or norm is None else {"skipped_steps": 1.0}
        return {"grad_norm": norm or 0.0, "learning_rate": rate, **skipped}

    def _clip(self) -> float | None:
        if all(parameter.grad is None for parameter in self.parameters):
            return None
        norm = math.sqrt(self._ranks.add(squares(self.parameters, self._ranks.counts)).sum())
        if math.isfinite(norm):
            scale(self.parameters, norm, self.settings.max_grad_norm or float("inf"))
        return norm

    def progress(self) -> dict[str, Any]:
        """Return the state that an exact continuation needs in addition to ``moments``, in types that torch loads without running code."""
        adam = {name: float(self._adam.state[item]["step"]) for name, item in self._named.items() if item in self._adam.state}
        return {"steps": self.steps, "names": list(self._named), "adam": adam}

    def moments(self) -> dict[str, torch.Tensor]:
        """Return the current first and second moments of the parameters that took a step, as ``exp_avg.NAME`` and ``exp_avg_sq.NAME``."""
        held = {name: self._adam.state[item] for name, item in self._named.items() if item in self._adam.state}
        return {f"{kind}.{name}": state[kind] for name, state in held.items() for kind in _MOMENTS}

    def restore(self, progress: dict[str, Any]) -> None:
        """Restore the state of ``progress`` and allocate the moments, which the caller then fills. Raises RunError if it belongs to
        another model."""
        if progress["names"] != list(self._named):
            raise RunError("the saved optimizer state belongs to another model: its parameters have other names")
        self._adam.state.clear()
        for name, step in progress["adam"].items():
            parameter = self._named[name]
            count = torch.tensor(step, dtype=torch.float32, device=local(parameter).device)
            self._adam.state[parameter] = {"step": count, **{kind: torch.zeros_like(parameter) for kind in _MOMENTS}}
        if self._streamed is not None:
            self.move(torch.device("cpu"))
        self.steps = progress["steps"]


def _by_mesh(parameters: Sequence[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Group parameters by mesh: one call of the fused kernel takes plain tensors, or tensors of one mesh."""
    kinds: dict[object, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return list(kinds.values())
