"""Functions of TRL and verl that a user gives as such: ``reward=fn`` in Python, or ``-rt ./my.py:fn``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from rlcore.api import Reward
from rlcore_plugin_adapters.adapter_options import TrlCallOptions, VerlCallOptions
from rlcore_plugin_adapters.named_function import NamedFunction
from rlcore_plugin_adapters.trl_reward import TrlReward
from rlcore_plugin_adapters.verl_reward import VerlReward

__all__ = ["reward_class"]


class GivenTrl(TrlReward):
    """A function of TRL. If it takes any keyword, it receives every column of the row, as in TRL."""

    Options = TrlCallOptions
    function: ClassVar[Callable[..., Any]]

    def __init__(self, options: TrlCallOptions) -> None:
        super().__init__(options)
        if self._function.open:
            self.requires = ()

    def _found(self, options: TrlCallOptions) -> NamedFunction:
        return NamedFunction.of(type(self).function, type(self).__name__)


class GivenVerl(VerlReward):
    """A function of verl."""

    Options = VerlCallOptions
    function: ClassVar[Callable[..., Any]]

    def _found(self, options: VerlCallOptions) -> NamedFunction:
        return NamedFunction.of(type(self).function, type(self).__name__)


_BY_PARAMETER: Mapping[str, type[Reward]] = {"completions": GivenTrl, "solution_str": GivenVerl}


def reward_class(function: Callable[..., Any]) -> type[Reward] | None:
    """Return a reward that calls the function, if a parameter shows that it is one of TRL or verl; else None."""
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function in C without a signature
        return None
    base = next((base for name, base in _BY_PARAMETER.items() if name in parameters), None)
    if base is None:
        return None
    body = {"function": staticmethod(function), "__doc__": function.__doc__, "__module__": function.__module__}
    return type(function.__name__, (base,), body)
