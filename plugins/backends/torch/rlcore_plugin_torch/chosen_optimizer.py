"""Optimizers of plugins: build them, and step them on parameters that are divided between ranks.

A factory sees whole shapes and knows nothing of ranks. For a step, a divided parameter has a stand-in, which is a plain tensor: the part of
this rank if the optimizer is elementwise, otherwise the whole tensor, gathered from all ranks. Only one whole tensor, with its gradient
and state, is in memory at a time. All ranks step it alike, and each keeps its part, so the state is saved and resharded as for AdamW.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed.tensor import DTensor, Replicate

from rlcore.api import OptimizerFactory, OptimizerSettings, PluginError
from rlcore_plugin_torch.sharding import local

__all__ = ["ChosenStep", "build"]


def build(factory: OptimizerFactory, model: torch.nn.Module, settings: OptimizerSettings) -> list[ChosenStep]:
    """Return the optimizers of the factory over the trained parameters of ``model``. Raises PluginError if a parameter is not in exactly
    one group."""
    named = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    lookups = {id(module.weight) for module in model.modules() if isinstance(module, torch.nn.Embedding)}
    lookups.add(id(getattr(model.get_output_embeddings(), "weight", None)))  # type: ignore[operator]  # of every transformers model
    tables = frozenset(name for name, parameter in named.items() if id(parameter) in lookups)
    who = f"optimizer {type(factory).__name__}"
    try:
        made = list(factory.build(named, settings, tables=tables))
    except Exception as error:  # the code of a plugin may raise anything
        raise PluginError(f"{who} failed in build(): {type(error).__name__}: {error}") from error
    if strange := [type(one).__name__ for one in made if not isinstance(one, torch.optim.Optimizer)]:
        raise PluginError(f"{who}: build() returned a {strange[0]}; it must return a list of torch.optim.Optimizer")
    _check_groups(made, named, who)
    return [ChosenStep(one, elementwise=factory.elementwise) for one in made]


def _check_groups(made: Sequence[torch.optim.Optimizer], named: Mapping[str, torch.nn.Parameter], who: str) -> None:
    counts = Counter(id(item) for one in made for group in one.param_groups for item in group["params"])
    for name, parameter in named.items():
        if (count := counts.pop(id(parameter), 0)) != 1:
            place = "no param group" if count == 0 else f"{count} param groups"
            raise PluginError(f"{who}: parameter {name!r} is in {place}; build() must put each parameter that it receives in one group")
    if counts:
        raise PluginError(f"{who}: a param group holds a tensor that is not a parameter that build() received; put only those in groups")


class ChosenStep:
    """One optimizer of a plugin, with the attributes of it that ``HostMoments`` and the schedule use."""

    def __init__(self, optimizer: torch.optim.Optimizer, *, elementwise: bool) -> None:
        self._optimizer = optimizer
        self._elementwise = elementwise
        self.state: dict[Any, Any] = optimizer.state

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """The groups of the optimizer."""
        return self._optimizer.param_groups

    @param_groups.setter
    def param_groups(self, groups: list[dict[str, Any]]) -> None:
        self._optimizer.param_groups = groups

    @torch.no_grad()
    def step(self) -> None:
        """Step all parameters that have a gradient. Collective if a parameter is divided between ranks."""
        groups = self.param_groups
        if not any(isinstance(item, DTensor) for group in groups for item in group["params"]):
            self._step_groups(groups)
            return
        try:
            for group in groups:
                held = [item for item in group["params"] if item.grad is not None]
                for some in [held] if self._elementwise else [[item] for item in held]:
                    self._step_some(group, some)
        finally:
            self.param_groups = groups

    def _step_some(self, group: dict[str, Any], some: Sequence[torch.nn.Parameter]) -> None:
        standing = [self._stand_in(item) for item in some]
        self.param_groups = [{**group, "params": standing}]
        self._step_groups(self.param_groups)
        for item, stand_in in zip(some, standing, strict=True):
            if stand_in is not item:
                self._put_back(item, stand_in)

    def _step_groups(self, groups: Sequence[dict[str, Any]]) -> None:
        """Step. Raises PluginError if the step changes a setting of a group, because checkpoints hold only the state of parameters."""
        before = [dict(group) for group in groups]
        self._optimizer.step()
        for old, new in zip(before, self.param_groups, strict=True):
            for key in old.keys() | new.keys():
                if old.get(key) is not new.get(key) and repr(old.get(key)) != repr(new.get(key)):
                    raise PluginError(f"{self._who} changed {key!r} of a param group, which is not saved; keep it in state[parameter]")

    def _stand_in(self, item: torch.nn.Parameter) -> torch.nn.Parameter:
        if not isinstance(item, DTensor):
            return item
        stand_in = torch.nn.Parameter(self._plain(item))
        assert isinstance(item.grad, DTensor)
        stand_in.grad = self._plain(item.grad)
        state = self.state.pop(item, {})
        if state:
            self.state[stand_in] = {key: self._plain(value) if isinstance(value, DTensor) else value for key, value in state.items()}
        return stand_in

    def _plain(self, tensor: DTensor) -> torch.Tensor:
        return local(tensor) if self._elementwise else tensor.full_tensor()

    def _put_back(self, item: torch.nn.Parameter, stand_in: torch.nn.Parameter) -> None:
        assert isinstance(item, DTensor)
        if not self._elementwise:
            local(item).copy_(local(self._divided(stand_in.detach(), item)))
        kept = {key: self._kept(key, value, item, stand_in) for key, value in self.state.pop(stand_in, {}).items()}
        if kept:
            self.state[item] = kept

    def _kept(self, key: str, value: Any, item: DTensor, stand_in: torch.Tensor) -> Any:
        """Return state as it is kept between steps: divided like its parameter if it has the parameter's shape."""
        if not isinstance(value, torch.Tensor) or value.ndim == 0:
            return value
        if value.shape == stand_in.shape:
            return self._divided(value, item)
        if self._elementwise:
            raise PluginError(
                f"{self._who} says that it is elementwise, and its state {key!r} has the shape {tuple(value.shape)} for a tensor of "
                f"{tuple(stand_in.shape)}; declare elementwise = False"
            )
        return value

    def _divided(self, value: torch.Tensor, item: DTensor) -> DTensor:
        """Return a value of the stand-in's shape as a tensor that is divided like ``item``."""
        mesh = item.device_mesh
        if not self._elementwise:
            whole = DTensor.from_local(value, mesh, [Replicate()] * mesh.ndim, run_check=False)
            value = local(whole.redistribute(placements=item.placements)).clone()  # a view would keep the whole tensor in memory
        return DTensor.from_local(value, mesh, item.placements, run_check=False, shape=item.shape, stride=item.stride())

    @property
    def _who(self) -> str:
        return f"optimizer {type(self._optimizer).__name__}"
