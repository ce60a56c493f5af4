"""AdamW with decoupled weight decay, or a chosen optimizer; gradient clipping and the schedule; a state that can be saved bit for bit."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from rlcore.api import OptimizerSettings, RunError
from rlcore.learning import learning_rate
from rlcore_plugin_torch.chosen_optimizer import ChosenStep, build
from rlcore_plugin_torch.clipping import scale, squares
from rlcore_plugin_torch.host_memory import HostMoments, move_moments
from rlcore_plugin_torch.optimizer_state import described, made_again, tensors_of
from rlcore_plugin_torch.ranks import TorchRanks

__all__ = ["Optimizer"]


_MOMENTS = ("exp_avg", "exp_avg_sq")
_OWN = "the backend's own AdamW"


class Optimizer:
    """The optimizer of one model; it counts its steps itself, because the learning rate is a function of the count.

    Without ``settings.optimizer`` it is AdamW: biases, norms and other vectors do not decay. Source: Loshchilov and Hutter, "Decoupled
    Weight Decay Regularization" (arXiv 1711.05101), algorithm 2.
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
        self._chosen = settings.optimizer
        self._optimizers: Sequence[torch.optim.Optimizer | ChosenStep] = (
            [self._adamw()] if self._chosen is None else build(self._chosen, model, settings)
        )
        self._streamed = [HostMoments(one) for one in self._optimizers] if offload else None

    def _adamw(self) -> torch.optim.Optimizer:
        settings = self.settings
        matrices = [parameter for parameter in self._named.values() if parameter.ndim >= 2]
        vectors = [parameter for parameter in self._named.values() if parameter.ndim < 2]
        groups = [
            {"params": alike, "weight_decay": decay}
            for kind, decay in ((matrices, settings.weight_decay), (vectors, 0.0))
            for alike in _by_mesh(kind)
        ]
        return torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas, fused=True)

    @property
    def parameters(self) -> list[torch.nn.Parameter]:
        """The parameters that it trains, in the model's order."""
        return list(self._named.values())

    def move(self, device: torch.device) -> None:
        """Move the moments to the device, or to host memory for ``cpu``. Moments that always stay in host memory do not move to the
        device."""
        if self._streamed is None or device.type == "cpu":
            for one in self._optimizers:
                move_moments(one, self.parameters, device)

    def zero_grad(self) -> None:
        """Discard the gradients."""
        for parameter in self._named.values():
            parameter.grad = None

    def step(self) -> dict[str, float]:
        """Clip, step and discard the gradients.

        Returns ``grad_norm`` before clipping, ``learning_rate``, and ``skipped_steps`` if a gradient was not finite. In that case, and
        without any gradient (the batch has nothing in the loss), weights, moments and schedule do not change.
        """
        rate = learning_rate(self.settings, self.steps)
        norm = self._clip()
        taken = norm is not None and math.isfinite(norm)
        if taken:
            for group in (group for one in self._optimizers for group in one.param_groups):
                group["lr"] = rate * group.get("lr_scale", 1.0)
            with self._ranks.together("stepping"):
                for stepping in self._streamed or self._optimizers:
                    stepping.step()
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
        states = self._states()
        if self._chosen is None:
            return {"steps": self.steps, "names": list(self._named), "adam": {name: float(state["step"]) for name, state in states.items()}}
        chosen = {"chosen": type(self._chosen).__name__, "states": described(states, self._named)}
        return {"steps": self.steps, "names": list(self._named), **chosen}

    def moments(self) -> dict[str, torch.Tensor]:
        """Return the current tensors of the state of the parameters that took a step: for AdamW ``exp_avg.NAME`` and
        ``exp_avg_sq.NAME``."""
        return tensors_of(self._states())

    def _states(self) -> dict[str, Mapping[str, Any]]:
        """Return the state of the parameters that took a step, by their names."""
        held = {item: state for one in self._optimizers for item, state in one.state.items()}
        return {name: held[item] for name, item in self._named.items() if item in held}

    def restore(self, progress: dict[str, Any]) -> None:
        """Restore the state of ``progress`` and allocate the moments, which the caller then fills. Raises RunError if it belongs to
        another model."""
        if progress["names"] != list(self._named):
            raise RunError("the saved optimizer state belongs to another model: its parameters have other names")
        saved, own = progress.get("chosen", _OWN), type(self._chosen).__name__ if self._chosen else _OWN
        if saved != own:
            raise RunError(f"the saved optimizer state is of {saved}, and this run steps with {own}; type --optimizer as in the saved run")
        owners = {item: one for one in self._optimizers for group in one.param_groups for item in group["params"]}
        for one in self._optimizers:
            one.state.clear()
        for name, entries in (progress["states"] if self._chosen else _adam_states(progress["adam"], self._named)).items():
            parameter = self._named[name]
            owners[parameter].state[parameter] = {key: made_again(entry, parameter) for key, entry in entries.items()}
        if self._streamed is not None:
            self.move(torch.device("cpu"))
        self.steps = progress["steps"]


def _adam_states(steps: Mapping[str, float], named: Mapping[str, torch.nn.Parameter]) -> dict[str, dict[str, Any]]:
    """Return the state of AdamW as ``described`` does: the count of steps, and two moments like the parameter."""
    moments = {name: {"shape": None, "dtype": str(named[name].dtype).removeprefix("torch.")} for name in steps}
    return {
        name: {"step": {"number": torch.tensor(step), "in_host_memory": False}, **dict.fromkeys(_MOMENTS, moments[name])}
        for name, step in steps.items()
    }


def _by_mesh(parameters: Sequence[torch.nn.Parameter]) -> list[list[torch.nn.Parameter]]:
    """Group parameters by mesh: one call of the fused kernel takes plain tensors, or tensors of one mesh."""
    kinds: dict[object, list[torch.nn.Parameter]] = {}
    for parameter in parameters:
        kinds.setdefault(parameter.device_mesh if isinstance(parameter, DTensor) else None, []).append(parameter)
    return list(kinds.values())
