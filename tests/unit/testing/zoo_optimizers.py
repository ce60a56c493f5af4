"""Optimizers with one planted bug each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any, ClassVar

import torch

from rlcore.contracts.interfaces import TrainingContext
from rlcore.contracts.training_settings import OptimizerFactory, OptimizerSettings
from rlcore.testing.training.fake_pipeline import FakePipeline

__all__ = ["CHOSEN_ZOO", "OPTIMIZER_ZOO"]


class Plain(torch.optim.Optimizer):
    """Gradient descent, one parameter after the other."""

    def __init__(self, groups: Any) -> None:
        super().__init__(groups, {"lr": 1.0})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for item in group["params"]:
                if item.grad is not None:
                    self.move(item, item.grad, group)

    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.sub_(group["lr"] * gradient)


class Planted(OptimizerFactory):
    kind: ClassVar[type[Plain]] = Plain

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        return [self.kind(self.chosen(parameters))]

    def chosen(self, parameters: Mapping[str, torch.nn.Parameter]) -> list[Any]:
        return list(parameters.values())


class ForgetsVectors(Planted):
    def chosen(self, parameters: Mapping[str, torch.nn.Parameter]) -> list[Any]:
        return [item for item in parameters.values() if item.ndim > 1]


class StepsTwice(Planted):
    """Embeddings and the head are in an optimizer of their own, and in that of the matrices."""

    def build(
        self, parameters: Mapping[str, torch.nn.Parameter], settings: OptimizerSettings, *, tables: Set[str]
    ) -> Sequence[torch.optim.Optimizer]:
        return [Plain(self.chosen(parameters)), *([Plain([parameters[name] for name in tables])] if tables else [])]


class ZeroesVectors(Planted):
    """New norms, as some recipes begin."""

    def chosen(self, parameters: Mapping[str, torch.nn.Parameter]) -> list[Any]:
        for item in parameters.values():
            if item.ndim == 1:
                item.data.fill_(1.0)
        return super().chosen(parameters)


class OwnRate(Plain):
    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.sub_(0.01 * gradient)


class KeepsItsRate(Planted):
    kind = OwnRate


class ScalesToNothing(Planted):
    def chosen(self, parameters: Mapping[str, torch.nn.Parameter]) -> list[Any]:
        return [{"params": [item], "lr_scale": 1.0 if item.ndim > 1 else 0.0} for item in parameters.values()]


class Up(Plain):
    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.add_(group["lr"] * gradient)


class Climbs(Planted):
    kind = Up


class Everywhere(Plain):
    def step(self, closure: Any = None) -> None:
        super().step()
        for group in self.param_groups:
            for item in group["params"]:
                item.data.mul_(1.0 - 0.01 * group["lr"])


class DecaysWithoutGradient(Planted):
    kind = Everywhere


class Noisy(Plain):
    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.sub_(group["lr"] * gradient * (1.0 + 0.01 * torch.rand(())))


class DrawsInSecret(Planted):
    kind = Noisy


class Counting(Plain):
    """A rate that falls with a count that is in no state."""

    steps = 0

    def step(self, closure: Any = None) -> None:
        self.steps += 1
        super().step()

    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.sub_(group["lr"] / (1.0 + self.steps // 3) * gradient)


class CountsInSecret(Planted):
    kind = Counting


class Listing(Plain):
    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        self.state[item].setdefault("seen", []).append(float(gradient.sum()))
        super().move(item, gradient, group)


class KeepsAList(Planted):
    kind = Listing


class Grouping(Plain):
    def step(self, closure: Any = None) -> None:
        super().step()
        for group in self.param_groups:
            group["steps"] = group.get("steps", 0) + 1


class CountsInTheGroup(Planted):
    kind = Grouping


class Together(Plain):
    """Divides by the length of the whole gradient."""

    def step(self, closure: Any = None) -> None:
        held = [item.grad for group in self.param_groups for item in group["params"] if item.grad is not None]
        self.length = sum(float(gradient.norm()) ** 2 for gradient in held) ** 0.5
        super().step()

    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.sub_(group["lr"] * gradient / self.length)


class DividesByTheWholeLength(Planted):
    kind = Together


class Normed(Plain):
    def move(self, item: torch.Tensor, gradient: torch.Tensor, group: dict[str, Any]) -> None:
        item.sub_(group["lr"] * gradient / gradient.norm())


class ClaimsToBeElementwise(Planted):
    """Divides by the length of each tensor, and says that parts of a tensor step on their own."""

    elementwise = True
    kind = Normed


OPTIMIZER_ZOO: dict[type[OptimizerFactory], tuple[str, str]] = {
    ForgetsVectors: ("test_each_parameter_is_in_one_group", "the groups hold"),
    StepsTwice: ("test_each_parameter_is_in_one_group", "the groups hold"),
    ZeroesVectors: ("test_building_changes_nothing", r"build\(\) changed tensor"),
    KeepsItsRate: ("test_the_rate_is_that_of_the_group", "with the rate 0 moved tensor"),
    ScalesToNothing: ("test_the_rate_is_that_of_the_group", "lr_scale of the groups"),
    Climbs: ("test_steps_lower_a_convex_loss", "from its target"),
    DecaysWithoutGradient: ("test_a_parameter_without_gradient_stays", "without its gradient moved tensor"),
    DrawsInSecret: ("test_deterministic", "moved otherwise tensor"),
    CountsInSecret: ("test_the_state_is_in_the_optimizer", "with the state handed over"),
    KeepsAList: ("test_the_state_is_in_the_optimizer", "state 'seen' is a list"),
    CountsInTheGroup: ("test_groups_are_settings", "steps changed steps of a group"),
    DividesByTheWholeLength: ("test_parameters_step_on_their_own", "when it stepped alone"),
    ClaimsToBeElementwise: ("test_elementwise_if_it_says_so", "declare elementwise = False"),
}
"""Bug -> the rule that is there for it, and what it says."""


class StepsWithItsOwn(FakePipeline):
    """AdamW, whatever was chosen."""

    def setup(self, context: TrainingContext) -> None:
        super().setup(replace(context, optimizer=replace(context.optimizer, optimizer=None)))


class ChangedBuild(FakePipeline):
    def _built(self, settings: OptimizerSettings) -> Sequence[torch.optim.Optimizer]:
        made = super()._built(settings)
        return made if settings.optimizer is None else self.changed(made)

    def changed(self, made: Sequence[torch.optim.Optimizer]) -> Sequence[torch.optim.Optimizer]:
        return made


class ForgetsTheScale(ChangedBuild):
    def changed(self, made: Sequence[torch.optim.Optimizer]) -> Sequence[torch.optim.Optimizer]:
        for group in made[0].param_groups:
            group["lr_scale"] = 1.0
        return made


class ForgetsMomentum(FakePipeline):
    """Steps with the chosen optimizer as it is built, each time."""

    def _step(self) -> dict[str, float]:
        if self.context.optimizer.optimizer is not None:
            self.optimizers = self._built(self.context.optimizer)
        return super()._step()


class ForgetsItInCheckpoints(FakePipeline):
    def load(self, folder: Any) -> None:
        super().load(folder)
        if self.context.optimizer.optimizer is not None:
            self.optimizers = self._built(self.context.optimizer)


class NamesThemItself(FakePipeline):
    def _built(self, settings: OptimizerSettings) -> Sequence[torch.optim.Optimizer]:
        if settings.optimizer is None:
            return super()._built(settings)
        named = {f"p{place}": item for place, item in enumerate(self.parameters)}
        return settings.optimizer.build(named, settings, tables=frozenset())


CHOSEN_ZOO: dict[type[FakePipeline], tuple[str, str]] = {
    StepsWithItsOwn: ("test_a_chosen_optimizer_takes_the_steps", "step 1 has length"),
    ForgetsMomentum: ("test_a_chosen_optimizer_takes_the_steps", "step 2 has length"),
    ForgetsTheScale: ("test_a_chosen_optimizer_scales_the_rate_of_a_group", "moved 1 times as far, 2.0 is due"),
    NamesThemItself: ("test_a_chosen_optimizer_scales_the_rate_of_a_group", "by other names than those of the weights"),
    ForgetsItInCheckpoints: ("test_a_chosen_optimizer_continues_exactly", "a step of a chosen optimizer left tensor"),
}
"""Trainer -> the rule that is there for it, and what it says."""
