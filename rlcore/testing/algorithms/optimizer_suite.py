"""Conformance suite for optimizers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import torch

from rlcore.contracts.training_settings import OptimizerFactory, OptimizerSettings

__all__ = ["OptimizerSuite"]

_LAYER = "model.layers.0."
_SHAPES: Mapping[str, tuple[int, ...]] = {
    "model.embed_tokens.weight": (10, 4),
    f"{_LAYER}self_attn.q_proj.weight": (6, 4),
    f"{_LAYER}self_attn.q_proj.bias": (6,),
    f"{_LAYER}mlp.down_proj.weight": (4, 8),
    f"{_LAYER}mlp.experts.gate_up_proj": (2, 6, 4),
    f"{_LAYER}input_layernorm.weight": (4,),
    "lm_head.weight": (10, 4),
}
"""A small model: tensors of one, two and three axes, each of which can be cut in two along its first axis."""
_TABLES = frozenset({"model.embed_tokens.weight", "lm_head.weight"})
_CLOSE = 1e-9
"""Largest difference between two ways to take one step, in float64."""

Parameters = dict[str, torch.nn.Parameter]
Optimizers = Sequence[torch.optim.Optimizer]


class OptimizerSuite(ABC):
    """The rules of an optimizer, on a small model in float64 whose loss is a sum of squares.

    A subclass defines how to make the factory.
    """

    learning_rate: ClassVar[float] = 0.05
    """A rate at which 40 steps bring weights of size 1 nearer to their targets, which are of size 1, too."""

    @abstractmethod
    def make(self) -> OptimizerFactory:
        """Return a fresh factory."""

    def test_each_parameter_is_in_one_group(self) -> None:
        """The groups of all optimizers hold each parameter once, also if all parameters are matrices, vectors or embeddings."""
        matrices, vectors = ({name for name, shape in _SHAPES.items() if (len(shape) > 1) is many} for many in (True, False))
        for chosen in (set(_SHAPES), matrices, vectors, set(_TABLES), {"lm_head.weight"}):
            parameters = _model(chosen)
            names = {id(item): name for name, item in parameters.items()}
            held = [names.get(id(item), "no parameter of the model") for item in _held(self._built(parameters))]
            assert sorted(held) == sorted(chosen), f"of {sorted(chosen)} the groups hold {sorted(held)}"

    def test_building_changes_nothing(self) -> None:
        """``build`` leaves the values of the parameters as they are."""
        parameters = _model()
        self._built(parameters)
        _check_same(parameters, _model(), "build() changed")

    def test_the_rate_is_that_of_the_group(self) -> None:
        """Every ``lr_scale`` is a number above 0, and a step with ``lr`` 0 moves no weight."""
        parameters = _model()
        built = self._built(parameters)
        scales = [group.get("lr_scale", 1.0) for optimizer in built for group in optimizer.param_groups]
        assert all(isinstance(scale, int | float) and 0.0 < scale < math.inf for scale in scales), f"lr_scale of the groups: {scales}"
        for _ in range(2):
            _step(parameters, built, 0.0)
        _check_same(parameters, _model(), "two steps with the rate 0 moved")

    def test_steps_lower_a_convex_loss(self) -> None:
        """40 steps bring each tensor nearer to its target."""
        parameters, start = _model(), _model()
        built = self._built(parameters)
        for _ in range(40):
            _step(parameters, built, self.learning_rate)
        for name in parameters:
            before, after = (float((values[name].detach() - _target(values[name])).norm()) for values in (start, parameters))
            assert after < before, f"tensor {name!r} was {before:.3g} from its target, and is {after:.3g} from it after 40 steps"

    def test_a_parameter_without_gradient_stays(self) -> None:
        """A parameter whose ``grad`` is None does not move."""
        parameters = _model()
        built, still = self._built(parameters), f"{_LAYER}self_attn.q_proj.weight"
        _step({name: item for name, item in parameters.items() if name != still}, built, self.learning_rate)
        _check_same({still: parameters[still]}, _model({still}), "a step without its gradient moved")

    def test_deterministic(self) -> None:
        """Two optimizers of one factory take the same steps, bit for bit, and so do those of two factories."""
        one, other = _model(), _model()
        factory = self.make()
        first, second = (factory.build(each, self._settings(), tables=_TABLES) for each in (one, other))
        third = _model()
        for parameters, built in ((one, first), (other, second), (third, self._built(third))):
            for _ in range(3):
                _step(parameters, built, self.learning_rate)
        _check_same(other, one, "the second optimizer moved otherwise")
        _check_same(third, one, "the optimizer of a second factory moved otherwise")

    def test_the_state_is_in_the_optimizer(self) -> None:
        """An optimizer that receives the ``state`` of another one takes the same next steps, bit for bit. A trainer saves only this."""
        straight = _model()
        built = self._built(straight)
        for _ in range(3):
            _step(straight, built, self.learning_rate)
        resumed = _model()
        again = self._built(resumed)
        with torch.no_grad():
            for name, item in straight.items():
                resumed[name].copy_(item)
        _hand_over(built, again, {item: resumed[name] for name, item in straight.items()})
        for rate in (self.learning_rate, self.learning_rate / 2):
            _step(straight, built, rate)
            _step(resumed, again, rate)
            _check_same(resumed, straight, "with the state handed over, a step moved otherwise")

    def test_groups_are_settings(self) -> None:
        """A step changes nothing in a group: what a trainer saves is the state of parameters."""
        parameters = _model()
        built = self._built(parameters)
        before = [_settings_of(group) for optimizer in built for group in optimizer.param_groups]
        for _ in range(2):
            _step(parameters, built, self.learning_rate)
        after = [_settings_of(group) for optimizer in built for group in optimizer.param_groups]
        for old, new in zip(before, after, strict=True):
            changed = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
            assert not changed, f"steps changed {', '.join(changed)} of a group; keep it in optimizer.state[parameter]"

    def test_parameters_step_on_their_own(self) -> None:
        """A parameter that steps alone moves as in a step of all. A trainer may hold a part of the model at a time."""
        together, apart = _model(), _model()
        whole, single = self._built(together), self._built(apart)
        for _ in range(3):
            _step(together, whole, self.learning_rate)
            for name in apart:
                _step({name: apart[name]}, single, self.learning_rate)
        _check_close(apart, together, "moved otherwise when it stepped alone")

    def test_elementwise_if_it_says_so(self) -> None:
        """With ``elementwise``, the halves of a tensor step as the whole one: each rank steps its own part."""
        if not self.make().elementwise:
            return
        whole, halves = _model(), [_model(), _model()]
        for half, parameters in enumerate(halves):
            for name, item in parameters.items():
                parameters[name] = torch.nn.Parameter(item.detach().chunk(2)[half].clone())
        built = [self._built(each) for each in (whole, *halves)]
        for _ in range(3):
            _step(whole, built[0], self.learning_rate)
            for half in (0, 1):
                _step(halves[half], built[1 + half], self.learning_rate, targets={n: _target(w).chunk(2)[half] for n, w in whole.items()})
        joined = {name: torch.nn.Parameter(torch.cat([half[name].detach() for half in halves])) for name in whole}
        _check_close(joined, whole, "moved otherwise in two halves; declare elementwise = False")

    def _settings(self) -> OptimizerSettings:
        return OptimizerSettings(learning_rate=self.learning_rate, weight_decay=0.0)

    def _built(self, parameters: Parameters) -> Optimizers:
        return self.make().build(parameters, self._settings(), tables=_TABLES & parameters.keys())


def _model(names: Iterable[str] = _SHAPES) -> Parameters:
    draw = torch.Generator().manual_seed(0)
    values = {name: torch.randn(shape, generator=draw, dtype=torch.float64) for name, shape in _SHAPES.items()}
    return {name: torch.nn.Parameter(values[name]) for name in _SHAPES if name in set(names)}


def _target(like: torch.Tensor) -> torch.Tensor:
    places = torch.arange(like.numel(), dtype=torch.float64)
    return torch.cos(7.0 * places).view(like.shape)


def _held(built: Optimizers) -> list[torch.Tensor]:
    return [item for optimizer in built for group in optimizer.param_groups for item in group["params"]]


def _step(parameters: Parameters, built: Optimizers, rate: float, targets: Mapping[str, torch.Tensor] | None = None) -> None:
    """Step the parameters that are given; those of the optimizers that are not given have no gradient."""
    for name, item in parameters.items():
        item.grad = item.detach() - (targets[name] if targets else _target(item))
    for optimizer in built:
        for group in optimizer.param_groups:
            group["lr"] = rate * group.get("lr_scale", 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)


def _hand_over(built: Optimizers, again: Optimizers, twins: Mapping[Any, torch.nn.Parameter]) -> None:
    """Copy the state of each parameter as a checkpoint would: tensors by value, numbers and texts as they are."""
    for one, other in zip(built, again, strict=True):
        strange = [key for key in one.state if key not in twins]
        assert not strange, f"{type(one).__name__}.state has keys that are not parameters: {strange}"
        for item, state in one.state.items():
            for key, value in state.items():
                plain = isinstance(value, torch.Tensor | int | float | str | None)
                assert plain, f"state {key!r} is a {type(value).__name__}, which a checkpoint does not hold; use tensors, numbers and texts"
            copied = {key: value.clone() if isinstance(value, torch.Tensor) else value for key, value in state.items()}
            other.state[twins[item]] = copied


def _settings_of(group: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in group.items() if key not in ("params", "lr")}


def _check_same(found: Parameters, due: Parameters, what: str) -> None:
    for name, item in found.items():
        assert torch.equal(item, due[name]), f"{what} tensor {name!r}"


def _check_close(found: Parameters, due: Parameters, what: str) -> None:
    for name, item in found.items():
        gap = float((item - due[name]).detach().abs().max())
        assert gap <= _CLOSE, f"tensor {name!r} {what} (by {gap:.2g})"
