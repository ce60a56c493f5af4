"""One configured reward, and how a worker process builds it."""

from __future__ import annotations

import importlib
import inspect
import numbers
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle
from pydantic import BaseModel

from rlcore.interfaces import Reward
from rlcore.registry import Attestation, Registry
from rlcore.specs import RewardSpec
from rlcore.types import RewardInput, Score

__all__ = ["FunctionReward", "RewardEntry", "RewardRecipe", "Traits"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardEntry:
    """A reward as the run uses it.

    ``weight`` multiplies its value; ``deadline`` is in seconds for one rollout; ``options`` is an instance of the model that the spec
    names, or None; ``payload`` is the cloudpickled class or function of a reward that is not packaged, else None.
    """

    name: str
    spec: RewardSpec
    weight: float = 1.0
    deadline: float = 10.0
    options: BaseModel | None = None
    payload: bytes | None = None
    attestation: Attestation | None = None
    """What the driver resolved the name to; every worker must resolve it to the same."""

    def __post_init__(self) -> None:
        if not self.deadline > 0:
            raise ValueError(f"reward {self.name}: deadline is {self.deadline}; it must be above 0 seconds")

    def recipe(self) -> RewardRecipe:
        """What a worker needs to build it, in a form that any fresh interpreter can read."""
        named = self.options is not None and bool(self.spec.config)
        return RewardRecipe(
            name=self.name,
            target=self.spec.target,
            payload=self.payload,
            # An unpackaged reward travels whole, so there is nothing to resolve on the other side.
            attestation=self.attestation if self.payload is None else None,
            config=self.spec.config,
            options=self.options.model_dump() if named and self.options is not None else None,
            pickled_options=cloudpickle.dumps(self.options) if self.options is not None and not named else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a built reward says of itself: ``requires`` None means every column of the row."""

    requires: tuple[str, ...] | None
    group_level: bool
    checks: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRecipe:
    """Plain values from which ``build`` makes the reward; crosses to the worker as a pickle."""

    name: str
    target: str
    payload: bytes | None
    config: str
    options: dict[str, Any] | None
    pickled_options: bytes | None
    attestation: Attestation | None = None

    def build(self) -> Reward:
        """Import, construct and open the reward; raises whatever the reward's own code raises, PluginError where another plugin or another
        version of it stands behind the name than the driver's."""
        if self.attestation is not None:
            Registry.discover().check_attestations([self.attestation])
        target = cloudpickle.loads(self.payload) if self.payload is not None else _attribute(self.target)
        options = self._options()
        if not isinstance(target, type):
            reward: Reward = FunctionReward(target) if options is None else FunctionReward(target, options)
        elif not issubclass(target, Reward):
            raise TypeError(f"{target.__qualname__} is neither a subclass of rlcore.api.Reward nor a function of one RewardInput")
        else:
            reward = target() if options is None else target(options)  # type: ignore[call-arg]
        reward.open()
        return reward

    def _options(self) -> Any:
        if self.pickled_options is not None:
            return cloudpickle.loads(self.pickled_options)
        return _attribute(self.config)(**(self.options or {})) if self.config else None

    def traits(self, reward: Reward) -> Traits:
        """What the judge must know: columns, group level, whether rows can be checked beforehand."""
        undeclared = isinstance(reward, FunctionReward) or (self.payload is not None and not reward.requires)
        return Traits(
            requires=None if undeclared else tuple(reward.requires),
            group_level=bool(reward.group_level),
            checks=type(reward).check is not Reward.check,
        )


class FunctionReward(Reward):
    """A plain function ``fn(item) -> Score | float`` (or ``fn(item, options)``) as a reward; it sees every column of the row."""

    def __init__(self, function: Callable[..., Any], *options: Any) -> None:
        if not callable(function):
            raise TypeError(f"a reward must be a class or a function, not {type(function).__name__}")
        if inspect.iscoroutinefunction(function):
            raise TypeError(f"{function.__name__} is async; a reward is a plain function, run in a process of its own")
        self._function = function
        self._options = options

    def score(self, item: RewardInput) -> Score:
        verdict = self._function(item, *self._options)
        if isinstance(verdict, numbers.Real):
            return Score(value=float(verdict))
        return verdict  # type: ignore[no-any-return]  # checked by the worker, as every verdict is


def _attribute(path: str) -> Any:
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for part in attribute.split("."):
        found = getattr(found, part)
    return found
