"""AdamW with decoupled weight decay, gradient clipping and the schedule, with a state that can be saved bit for bit."""

from __future__ import annotations

from typing import Any

import torch

from rlcore.api import OptimizerSettings, RunError
from rlcore.learning import learning_rate
from rlcore_plugin_torch.host_memory import HostMoments, move_moments

__all__ = ["Optimizer"]


class Optimizer:
    """Counts optimizer steps itself: the learning rate is a function of the count. Biases, norms and other vectors do not decay.

    Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (arXiv 1711.05101), algorithm 2.
    """

    def __init__(self, model: torch.nn.Module, settings: OptimizerSettings, *, offload: bool = False) -> None:
        """``offload``: moments live in host memory and are on the device only while their parameters step."""
        self.settings = settings
        self.steps = 0
        self._named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        matrices = [parameter for parameter in self._named.values() if parameter.ndim >= 2]
        vectors = [parameter for parameter in self._named.values() if parameter.ndim < 2]
        groups = [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": vectors, "weight_decay": 0.0}]
        self._adam = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)
        self._streamed = HostMoments(self._adam) if offload else None

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """What it trains, in the model's order."""
        return list(self._named.values())

    def move(self, device: torch.device) -> None:
        """Moments to the device, or to host memory for ``cpu``; where they live there anyway, they stay."""
        if self._streamed is None or device.type == "cpu":
            move_moments(self._adam, self.parameters, device)

    def zero_grad(self) -> None:
        """Forget the gradients."""
        self._adam.zero_grad(set_to_none=True)

    def step(self) -> dict[str, float]:
        """Clip, step, forget the gradients; ``grad_norm`` before clipping and ``learning_rate``.

        Without any gradient (nothing in the batch is in the loss) the weights and moments stay and the schedule moves on. Raises RunError
        where the gradient is not finite; the weights are untouched then.
        """
        rate = learning_rate(self.settings, self.steps)
        norm = self._clip()
        if norm is not None:
            for group in self._adam.param_groups:
                group["lr"] = rate
            (self._streamed or self._adam).step()
        self.steps += 1
        self.zero_grad()
        return {"grad_norm": norm or 0.0, "learning_rate": rate}

    def _clip(self) -> float | None:
        parameters = [parameter for parameter in self._named.values() if parameter.grad is not None]
        if not parameters:
            return None
        limit = self.settings.max_grad_norm or float("inf")
        norm = float(torch.nn.utils.clip_grad_norm_(parameters, limit))
        if norm != norm or norm == float("inf"):
            worst = next(name for name, item in self._named.items() if item.grad is not None and not torch.isfinite(item.grad).all())
            raise RunError(f"the gradient of {worst!r} is not finite at optimizer step {self.steps}; lower the learning rate")
        return norm

    def state(self) -> dict[str, Any]:
        """Everything an exact continuation needs, in types that torch loads without running code."""
        return {"steps": self.steps, "names": list(self._named), "adam": self._adam.state_dict()}

    def restore(self, state: dict[str, Any]) -> None:
        """Take what ``state`` gave; RunError where it belongs to another model."""
        if state["names"] != list(self._named):
            raise RunError("the saved optimizer state belongs to another model: its parameters have other names")
        self._adam.load_state_dict(state["adam"])
        if self._streamed is not None:
            self.move(torch.device("cpu"))
        self.steps = state["steps"]
