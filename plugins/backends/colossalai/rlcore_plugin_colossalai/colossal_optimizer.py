"""AdamW under ColossalAI's optimizer wrappers: this module computes norm, clipping and schedule; ColossalAI takes the step.

ColossalAI's own clipping is inside its step, which is too late to skip a step. Norms add squares in the order of the ranks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch

from rlcore.api import ConfigError, OptimizerSettings
from rlcore.learning import learning_rate
from rlcore_plugin_colossalai.colossal_layout import ColossalLayout
from rlcore_plugin_colossalai.rank_group import RankGroup
from rlcore_plugin_colossalai.sharded_weights import Weights

__all__ = ["ColossalOptimizer", "make_adamw"]

MOMENTS = ("exp_avg", "exp_avg_sq")


def make_adamw(model: torch.nn.Module, settings: OptimizerSettings, adam: str = "auto") -> torch.optim.Optimizer:
    """Return the optimizer; matrices decay, vectors do not.

    ``adam``: see ``ColossalOptions``. Raises ConfigError for HybridAdam without CUDA.
    """
    parameters = list(model.parameters())
    cuda = parameters[0].device.type == "cuda"
    if adam == "hybrid" and not cuda:
        raise ConfigError("training.options.adam 'hybrid': ColossalAI's fused kernels need CUDA, and this rank is on a CPU; use 'auto'")
    groups = [
        {"params": [item for item in parameters if item.ndim >= 2], "weight_decay": settings.weight_decay},
        {"params": [item for item in parameters if item.ndim < 2], "weight_decay": 0.0},
    ]
    made: torch.optim.Optimizer
    if cuda and adam != "torch":
        from colossalai.nn.optimizer import HybridAdam

        made = HybridAdam(groups, lr=settings.learning_rate, betas=settings.betas, eps=1e-8, adamw_mode=True)
    else:
        made = torch.optim.AdamW(groups, lr=settings.learning_rate, betas=settings.betas)
    return made


class ColossalOptimizer:
    """``wrapper``: the optimizer that ``booster.boost`` made of ``make_adamw``; ``stage``: of ZeRO, 0 without ZeRO."""

    def __init__(
        self, wrapper: Any, stage: int, weights: Weights, layout: ColossalLayout, group: RankGroup, settings: OptimizerSettings
    ) -> None:
        self.wrapper, self.stage, self.weights, self.layout, self.group, self.settings = wrapper, stage, weights, layout, group, settings
        self.steps = 0

    def zero_grad(self) -> None:
        """Discard the gradients."""
        self.wrapper.zero_grad()

    def skip(self) -> dict[str, float]:
        """Return the figures of a step that has nothing in the loss."""
        self.zero_grad()
        return {"grad_norm": 0.0, "learning_rate": learning_rate(self.settings, self.steps)}

    def step(self) -> dict[str, float]:
        """Clip, step and discard the gradients. If the norm is not finite, weights, moments and schedule do not change."""
        rate, gradients = learning_rate(self.settings, self.steps), self._gradients()
        norm = math.sqrt(self._squares(gradients))
        taken = math.isfinite(norm)
        if taken:
            factor = (self.settings.max_grad_norm or math.inf) / (norm + 1e-6)
            if factor < 1.0:
                for gradient in gradients.values():
                    gradient.mul_(factor)
            for group in self.wrapper.param_groups:
                group["lr"] = rate
            self.wrapper.step()
            self.steps += 1
        self.zero_grad()
        return {"grad_norm": norm, "learning_rate": rate, **({} if taken else {"skipped_steps": 1.0})}

    def _gradients(self) -> dict[str, torch.Tensor]:
        """Return the gradients that this rank steps on, by name: those of its parameters, or its part of them under ZeRO."""
        found: dict[str, torch.Tensor] = {}
        for name, item in self.weights.own.items():
            if not self.stage:
                if item.grad is not None:
                    found[name] = item.grad
                continue
            store = self.wrapper.pid_to_grad_store[id(item)]
            parts = store.get_partitioned_gradients_by_param_id(0 if item.ndim >= 2 else 1, id(item))
            if parts:
                found[name] = parts[0 if self.stage == 2 else store.local_rank]
        return found

    def _squares(self, gradients: Mapping[str, torch.Tensor]) -> float:
        """Return the sum of squares of the whole gradient: a tensor that several ranks hold counts once."""
        data, pipeline, tensor = self.layout.place(self.group.rank)
        own = 0.0
        for name, gradient in gradients.items():
            first = (self.stage or data == 0) and self.weights.owners[name] == pipeline
            if first and (tensor == 0 or name in self.weights.sliced):
                own += float(torch.linalg.vector_norm(gradient.float(), dtype=torch.float64)) ** 2
        return float(np.sum(self.group.everyone(np.array([own]), "adding up gradient norms")))

    # --- saving, loading -----------------------------------------------------------------------------------------------------

    def _saved(self) -> list[tuple[str, str]]:
        """Return (kind, name) of the saved tensors: moments once there was a step, masters if the model is less precise than they are."""
        rounded = any(own.dtype != torch.float32 for own in self.weights.own.values())
        kinds = (MOMENTS if self.steps else ()) + (("master",) if rounded else ())
        return [(kind, name) for name in self.weights.shapes for kind in kinds]

    def sizes(self) -> dict[str, int]:
        """Return the bytes of the tensors that ``whole`` yields, by "kind.name", in its order."""
        return {f"{kind}.{name}": 4 * self.weights.shapes[name].numel() for kind, name in self._saved()}

    def whole(self) -> Iterator[torch.Tensor]:
        """Yield the moments and masters, whole, one after the other; collective."""
        for kind, name in self._saved():
            own = self.weights.own.get(name)
            part = None if own is None else self._shaped(name, self._stored(name, own, kind))
            yield self.weights.whole(name, part, torch.float32)

    def _stored(self, name: str, own: torch.nn.Parameter, kind: str) -> torch.Tensor:
        key = self._key(own)
        if kind == "master":
            return key.detach()
        found: torch.Tensor | None = self.wrapper.optim.state.get(key, {}).get(kind)
        return torch.zeros_like(key) if found is None else found.detach()  # None: the parameter has never had a gradient

    def _key(self, own: torch.nn.Parameter) -> torch.Tensor:
        """Return the key of the parameter in torch's optimizer."""
        found: torch.Tensor = self.wrapper.working_to_master_param[id(own)] if self.stage else own
        return found

    def _shaped(self, name: str, part: torch.Tensor) -> torch.Tensor:
        return self.weights.unflattened(name, part) if self.stage else part

    def restore(self, steps: int, saved: Callable[[str], torch.Tensor | None]) -> None:
        """Restore the tensors that ``whole`` yielded, in any layout. ``saved``: returns a tensor by "kind.name"."""
        self.steps = steps
        inner = self.wrapper.optim
        inner.state.clear()
        for name, own in self.weights.own.items():
            key = self._key(own)
            if self.stage and (master := saved(f"master.{name}")) is not None:
                key.data.copy_(self._part(name, master))
            moments = {kind: saved(f"{kind}.{name}") for kind in MOMENTS}
            parts = {kind: self._part(name, moment).to(key.device) for kind, moment in moments.items() if moment is not None}
            if parts:
                inner.state[key] = {"step": torch.tensor(float(steps)), **parts}

    def _part(self, name: str, whole: torch.Tensor) -> torch.Tensor:
        part = self.weights.slice_of(name, whole)
        return self.weights.flattened(name, part) if self.stage else part
