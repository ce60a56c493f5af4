"""A plain function where a class is expected: wrapped into the smallest reward, loss or estimator that calls it.

Reward ``fn(item: RewardInput) -> Score | float``; loss ``fn(logprobs, batch: LossBatch)``, [n] -> [n]; estimator
``fn(batch: RewardBatch)`` -> array [R], or [N] with ``fn.per = "token"``.
Attributes set on the function (``fn.requires = ("gt_answer",)``) stand for the class attributes of the same names.
"""

from __future__ import annotations

import inspect
import numbers
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from rlcore.contracts.batches import LossBatch, RewardBatch
from rlcore.contracts.interfaces import AdvantageEstimator, Loss, Reward
from rlcore.contracts.specs import PluginKind
from rlcore.contracts.types import RewardInput, Score

if TYPE_CHECKING:
    import torch

__all__ = ["PARAMETERS", "FunctionEstimator", "FunctionLoss", "FunctionReward", "gives_accuracy", "wrap"]


class FunctionReward(Reward):
    """A function of one rollout, ``fn(item)`` or ``fn(item, options)``. A number becomes ``Score(value=number)``, without accuracy.

    It is called with every column of the row, unless the function says ``fn.requires = (…)``.
    """

    function: ClassVar[Callable[..., Score | float]]

    def __init__(self, *options: Any) -> None:
        if inspect.iscoroutinefunction(type(self).function):
            raise TypeError(f"{type(self).__name__} is async; write a plain function, or a class derived from rlcore.api.AsyncReward")
        self._options = options

    def score(self, item: RewardInput) -> Score:
        result = type(self).function(item, *self._options)
        if isinstance(result, Score):
            return result
        if isinstance(result, numbers.Real | np.bool_):
            return Score(value=float(result))
        raise TypeError(f"the reward function {type(self).__name__} returned {type(result).__name__}, it must return a Score or a number")


class FunctionLoss(Loss):
    """A function of log probabilities [n] and a ``LossBatch``."""

    function: ClassVar[Callable[[torch.Tensor, LossBatch], Any]]

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        result: torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]] = type(self).function(logprobs, batch)
        return result


class FunctionEstimator(AdvantageEstimator):
    """A function of the global ``RewardBatch``."""

    function: ClassVar[Callable[[RewardBatch], Any]]

    def estimate(self, batch: RewardBatch) -> np.ndarray:
        return np.asarray(type(self).function(batch), dtype=np.float64)


_WRAPPERS: Mapping[PluginKind, type] = {
    PluginKind.REWARD: FunctionReward,
    PluginKind.LOSS: FunctionLoss,
    PluginKind.ESTIMATOR: FunctionEstimator,
}

_ATTRIBUTES: Mapping[PluginKind, Mapping[str, Callable[[Any], Any]]] = {
    PluginKind.REWARD: {"requires": tuple},
    PluginKind.LOSS: {"needs": frozenset},
    PluginKind.ESTIMATOR: {"needs_greedy": bool, "accepts_kl": bool, "per": str},
}

PARAMETERS: Mapping[PluginKind, tuple[str, ...]] = {
    PluginKind.REWARD: ("item",),
    PluginKind.LOSS: ("logprobs", "batch"),
    PluginKind.ESTIMATOR: ("batch",),
}
"""What a function of each kind is called with; kinds that are not here must be classes."""


def wrap(kind: PluginKind, function: Callable[..., Any]) -> type:
    """A class of that kind that calls the function, made without arguments (a reward also with its options); it can be shipped like any."""
    declared = {name: convert(getattr(function, name)) for name, convert in _ATTRIBUTES[kind].items() if hasattr(function, name)}
    body = {"function": staticmethod(function), "__doc__": function.__doc__, "__module__": function.__module__, **declared}
    return type(getattr(function, "__name__", type(function).__name__), (_WRAPPERS[kind],), body)


def gives_accuracy(function: Callable[..., Any]) -> bool:
    """Whether a reward function's scores carry accuracy: its attribute of that name, else whether it is annotated to return a Score."""
    declared = getattr(function, "gives_accuracy", None)
    if declared is not None:
        return bool(declared)
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
    return annotation is Score or (isinstance(annotation, str) and annotation.split(".")[-1] == "Score")
