"""Targets, ``"package.module:attribute"``, which specs name: located without an import, imported, and checked against their kind."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import pickle
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib.machinery import ModuleSpec, PathFinder
from typing import Any

from rlcore.contracts.command_line import Command
from rlcore.contracts.control import Controller
from rlcore.contracts.conversation import Conversation
from rlcore.contracts.environment import ChosenEnvironment, Environment
from rlcore.contracts.errors import PluginError
from rlcore.contracts.group_filter import GroupFilter
from rlcore.contracts.interfaces import AdvantageEstimator, InferenceBackend, Loss, Tracker, TrainingBackend
from rlcore.contracts.loss_wrappers import Aggregation, Correction, KlEstimator
from rlcore.contracts.model_hook import ModelHook
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.row_interfaces import RowFormat, RowSource
from rlcore.contracts.runtime_interface import Runtime
from rlcore.contracts.sampler import Sampler
from rlcore.contracts.sandboxing import Sandbox
from rlcore.contracts.specs import PluginKind, Spec
from rlcore.contracts.training_settings import LearningRateSchedule, OptimizerFactory
from rlcore.contracts.weight_transfer import WeightTransfer
from rlcore.registry.error_context import closest, reason, stdout_to_stderr

__all__ = ["BASES", "class_problem", "described", "disagreement", "environment_target", "load_target", "missing_target", "wrong_call"]

BASES: Mapping[PluginKind, type] = {
    PluginKind.REWARD: Reward,
    PluginKind.INFERENCE: InferenceBackend,
    PluginKind.TRAINING: TrainingBackend,
    PluginKind.ESTIMATOR: AdvantageEstimator,
    PluginKind.LOSS: Loss,
    PluginKind.AGGREGATION: Aggregation,
    PluginKind.KL: KlEstimator,
    PluginKind.CORRECTION: Correction,
    PluginKind.TRACKER: Tracker,
    PluginKind.RUNTIME: Runtime,
    PluginKind.TRANSFER: WeightTransfer,
    PluginKind.SANDBOX: Sandbox,
    PluginKind.COMMAND: Command,
    PluginKind.DATA: RowSource,
    PluginKind.CONVERSATION: Conversation,
    PluginKind.ENVIRONMENT: Environment,
    PluginKind.FORMAT: RowFormat,
    PluginKind.LR_SCHEDULE: LearningRateSchedule,
    PluginKind.CONTROLLER: Controller,
    PluginKind.FILTER: GroupFilter,
    PluginKind.MODEL_HOOK: ModelHook,
    PluginKind.OPTIMIZER: OptimizerFactory,
    PluginKind.SAMPLER: Sampler,
}
"""The class of which the target of each kind makes instances; a recipe has no target."""

_PAGE: Mapping[PluginKind, str] = {
    PluginKind.RUNTIME: "rlcore.api.runtime",
    PluginKind.TRANSFER: "rlcore.api.weights",
    PluginKind.SANDBOX: "rlcore.api.sandbox",
    PluginKind.COMMAND: "rlcore.api.commands",
    PluginKind.DATA: "rlcore.api.data",
    PluginKind.CONVERSATION: "rlcore.api.conversations",
    PluginKind.ENVIRONMENT: "rlcore.api.environments",
    PluginKind.FORMAT: "rlcore.api.data",
}
"""The page that has the base class of a kind; ``rlcore.api`` for kinds that are not here."""


def load_target(address: str, label: str) -> Any:
    """Import the module and return its attribute, which may be dotted.

    :param label: the beginning of the error message: "reward 'boxed': its target 'm:Boxed'".
    :raises PluginError: the module cannot be imported, or has no such attribute.
    """
    module, _, path = address.partition(":")
    try:
        with stdout_to_stderr():
            found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{label} cannot be imported: {reason(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise PluginError(f"{label} does not exist{closest(part, dir(found))}")
        found = getattr(found, part)
    return found


def environment_target(chosen: ChosenEnvironment) -> Any:
    """Return the target of a run's environment, imported or unpickled. Raises PluginError if it cannot be imported in this process."""
    if chosen.payload is not None:
        return pickle.loads(chosen.payload)
    return load_target(chosen.spec.target, f"environment {chosen.name!r} of {chosen.owner}: its target {chosen.spec.target!r}")


def class_problem(kind: PluginKind, found: Any, *, function: str = "") -> str:
    """Return half a sentence if ``found`` is not a complete class of the kind, "" if it is.

    :param function: the alternative to a class, for the sentence.
    """
    base = BASES[kind]
    if not (isinstance(found, type) and issubclass(found, base)):
        page = _PAGE.get(kind, "rlcore.api")
        return f"is {described(found)}, it must be a class derived from {page}.{base.__name__}{function}"
    lacking = sorted(getattr(found, "__abstractmethods__", ()))
    return f"does not define {' and '.join(lacking)}(), which every {base.__name__} must" if lacking else ""


def disagreement(kind: PluginKind, spec: Spec, found: Any) -> str:
    """Return half a sentence if a class, or an instance, contradicts its spec, "" if not. The order of texts does not matter.

    Attributes that a class merely inherits do not count, nor those that a reward instance sets itself: they may depend on its options.
    """
    for name in spec.on_class:
        in_spec, in_class = getattr(spec, name), getattr(found, name, None)
        if isinstance(found, type):
            left_open = in_class is getattr(BASES[kind], name, None)
        else:
            left_open = kind is PluginKind.REWARD and in_class is not getattr(type(found), name, None)
        said = [(name, in_spec, in_class)]
        if is_dataclass(in_spec) and isinstance(in_class, type(in_spec)):
            said = [(f"{name}.{field.name}", getattr(in_spec, field.name), getattr(in_class, field.name)) for field in fields(in_spec)]
        for what, one, other in said:
            if isinstance(other, str | bool | tuple | list | frozenset) and not left_open and _sorted(one) != _sorted(other):
                return f"{what} is {_spoken(other)} on its class and {_spoken(one)} in its spec; they must agree"
    return ""


def _sorted(value: Any) -> Any:
    return sorted(value) if isinstance(value, tuple | list) else value


def _spoken(value: Any) -> str:
    return ", ".join(sorted(value)) if isinstance(value, frozenset) else str(value)


def wrong_call(target: Any, arguments: Sequence[Any]) -> str:
    """Return half a sentence with the call, ``Mine(SamplerContext, Options)``, if the target does not take these arguments; else ""."""
    try:
        inspect.signature(target).bind(*arguments)
    except TypeError:
        return f"; it is called as {target.__name__}({', '.join(type(argument).__name__ for argument in arguments)})"
    return ""


def described(found: Any) -> str:
    """Return a description for a sentence: the class X, a function, of type int."""
    if isinstance(found, type):
        return f"the class {found.__name__}"
    return "a function" if inspect.isroutine(found) else f"of type {type(found).__name__}"


def missing_target(address: str, label: str) -> str:
    """Return a sentence if the target does not exist; "" if it does, or if only an import could tell.

    Imports nothing, because targets may be heavy.
    """
    module, _, path = address.partition(":")
    if module in sys.modules:
        first, names = path.partition(".")[0], dir(sys.modules[module])
        return "" if hasattr(sys.modules[module], first) else f"{label} does not exist{closest(first, names)}"
    try:
        place = _locate(module)
    except (ImportError, ValueError) as error:
        return f"{label} cannot be looked up: {error}"
    return "" if place is not None else f"{label} does not exist: there is no module {module!r}"


def _locate(module: str) -> ModuleSpec | None:
    """Find a module's file without importing its parents, which may be heavy."""
    parts = module.split(".")
    spec = importlib.util.find_spec(parts[0])
    for end in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[:end]), spec.submodule_search_locations)
    return spec
