"""Rewards, losses, estimators and other parts that are not packaged yet: ``./my.py:MyLoss``, ``pkg.mod:fn``, and Python objects.

A file is loaded under its own module name (made from its path and content), and its source is hashed. Its objects can be sent to a process
that does not have the file. A class may name its pydantic options model as an attribute ``Options``.

A plain function in place of a class is wrapped into the smallest reward, loss or estimator that calls it. A reward is ``fn(item:
RewardInput) -> Score | float``. A loss is ``fn(logprobs, batch: LossBatch)``, [n] -> [n]. An estimator is ``fn(batch: RewardBatch)`` ->
array [R], or [N] with ``fn.per = "token"``. Attributes set on the function (``fn.requires = ("gt_answer",)``) replace the class attributes
of the same names.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import numbers
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar

import cloudpickle
import numpy as np

from rlcore.contracts.batches import LossBatch, RewardBatch
from rlcore.contracts.errors import PluginError
from rlcore.contracts.interfaces import AdvantageEstimator, Loss
from rlcore.contracts.reward_interface import Reward
from rlcore.contracts.specs import LABELS, SPEC_OF_KIND, AlgorithmSpec, PluginKind, Spec
from rlcore.contracts.types import RewardInput, Score
from rlcore.registry.error_context import closest, reason, stdout_to_stderr
from rlcore.registry.targets import BASES, class_problem, described

if TYPE_CHECKING:
    import torch

__all__ = [
    "PARAMETERS",
    "FunctionEstimator",
    "FunctionLoss",
    "FunctionReward",
    "UnpackagedPlugin",
    "describe_unpackaged",
    "gives_accuracy",
    "is_reference",
    "load_reference",
    "shipped",
    "wrap",
]


class FunctionReward(Reward):
    """A reward that calls a function of one rollout, ``fn(item)`` or ``fn(item, options)``.

    A number becomes ``Score(value=number)``, without accuracy. The function receives every column of the row, unless it sets ``fn.requires
    = (…)``.
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
    """A loss that calls a function of log probabilities [n] and a ``LossBatch``."""

    function: ClassVar[Callable[[torch.Tensor, LossBatch], Any]]

    def per_token(self, logprobs: torch.Tensor, batch: LossBatch) -> torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]]:
        result: torch.Tensor | tuple[torch.Tensor, Mapping[str, torch.Tensor]] = type(self).function(logprobs, batch)
        return result


class FunctionEstimator(AdvantageEstimator):
    """An estimator that calls a function of the global ``RewardBatch``."""

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
"""The parameters of a function of each kind; kinds that are not here must be classes."""


def wrap(kind: PluginKind, function: Callable[..., Any]) -> type:
    """Return a class of that kind that calls the function.

    It is made without arguments (a reward also with its options), and can be shipped like any other class.
    """
    declared = {name: convert(getattr(function, name)) for name, convert in _ATTRIBUTES[kind].items() if hasattr(function, name)}
    body = {"function": staticmethod(function), "__doc__": function.__doc__, "__module__": function.__module__, **declared}
    return type(getattr(function, "__name__", type(function).__name__), (_WRAPPERS[kind],), body)


def gives_accuracy(function: Callable[..., Any]) -> bool:
    """Return whether a reward function's scores have accuracy: its attribute of that name, else whether its annotation returns a Score."""
    declared = getattr(function, "gives_accuracy", None)
    if declared is not None:
        return bool(declared)
    annotation = getattr(inspect.unwrap(function), "__annotations__", {}).get("return")
    return annotation is Score or (isinstance(annotation, str) and annotation.split(".")[-1] == "Score")


_PACKAGED = (PluginKind.TRANSFER, PluginKind.COMMAND)
"""Kinds that can be used only by a registered name."""


Adapter = Callable[[PluginKind, Any], Any]


def _as_it_is(kind: PluginKind, found: Any) -> Any:
    return found


@dataclass(frozen=True, kw_only=True)
class UnpackagedPlugin:
    """An unpackaged object, checked.

    ``target`` is called like any plugin's target. ``options`` is its pydantic model or None. ``owner`` is its file. ``source_sha256`` is
    the hash of that file, or of the object's own source in a notebook, "" if there is no source.
    """

    spec: Spec
    target: Callable[..., Any] | None
    options: Any
    owner: str
    source_sha256: str
    module: str


def is_reference(name: str) -> bool:
    """Return True for ``./my.py:MyLoss`` and ``pkg.mod:Attr``: registered names contain no colon."""
    return ":" in name


def load_reference(kind: PluginKind, reference: str, adapted: Adapter = _as_it_is) -> UnpackagedPlugin:
    """Import the object that ``reference`` names and check that it is a ``kind``. Raise PluginError, with one sentence, if it is not."""
    where, _, attribute = reference.rpartition(":")
    label = f"{LABELS[kind]} {reference!r}"
    if not where or not re.fullmatch(r"[^\W\d]\w*(\.[^\W\d]\w*)*", attribute):
        raise PluginError(f"{label} must read ./file.py:NAME or package.module:NAME")
    with stdout_to_stderr():
        module = _load_file(where, label) if where.endswith(".py") else _import(where, label)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            public = [name for name in vars(module) if not name.startswith("_")]
            raise PluginError(f"{label}: {where} has no {attribute!r}{closest(attribute, public)}")
        found = getattr(found, part)
    adopted = describe_unpackaged(kind, found, label=label, module=module, adapted=adapted)
    if module.__name__ not in cloudpickle.list_registry_pickle_by_value():
        cloudpickle.register_pickle_by_value(module)  # never undone: instances of its options are pickled separately
    return replace(adopted, owner=str(Path(where).expanduser().resolve())) if where.endswith(".py") else adopted


def describe_unpackaged(
    kind: PluginKind, found: Any, *, label: str, module: ModuleType | None = None, adapted: Adapter = _as_it_is
) -> UnpackagedPlugin:
    """Check an object and return it with a spec. Class attributes become the spec's fields, and the docstring's first line its summary.

    :param adapted: returns a class in place of a function of another library.
    """
    source, found = found, adapted(kind, found)
    home = module or sys.modules.get(getattr(found, "__module__", None) or type(found).__module__)
    if kind is PluginKind.ALGORITHM:
        if not isinstance(found, AlgorithmSpec):
            raise PluginError(f"{label} is {described(found)}, a recipe must be an AlgorithmSpec")
        spec: Spec = found
        target, options = None, None
    else:
        target = _target(kind, found, label)
        options = getattr(found, "Options", None)
        spec = _spec(kind, found, target, home, label)
    return UnpackagedPlugin(
        spec=spec,
        target=target,
        options=options,
        owner=_file(home) or getattr(home, "__name__", "python"),
        source_sha256=_source_hash(source, home),
        module=getattr(home, "__name__", ""),
    )


# --- finding -----------------------------------------------------------------------------------------------------------


def _load_file(where: str, label: str) -> ModuleType:
    path = Path(where).expanduser().resolve()
    if not path.is_file():
        raise PluginError(f"{label}: there is no file {path}")
    try:
        source = path.read_bytes()
        ast.parse(source, filename=str(path))
    except (OSError, SyntaxError, ValueError) as error:
        raise PluginError(f"{label}: {where} cannot be read as Python: {reason(error)}") from error
    digest = hashlib.sha256(str(path).encode() + b"\0" + source).hexdigest()[:12]
    name = f"rlcore_file_{digest}_{re.sub(r'[^A-Za-z0-9_]', '_', path.stem)}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise PluginError(f"{label}: {where} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickle look up the module while it is being executed
    try:
        # # compiled here because the import system's cache relies on size and time stamp, which an edit within one second may not change
        exec(compile(source, str(path), "exec", dont_inherit=True), vars(module))
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise PluginError(f"{label}: running {where} raised {reason(error)}") from error
    return module


def _import(where: str, label: str) -> ModuleType:
    try:
        return importlib.import_module(where)
    except ModuleNotFoundError as error:
        if error.name and (where == error.name or where.startswith(f"{error.name}.")):
            hint = f"./{where.replace('.', '/')}.py:NAME"
            raise PluginError(f"{label}: there is no module {error.name!r} on the import path; for a file write {hint}") from error
        raise PluginError(f"{label}: importing {where} raised {reason(error)}") from error
    except (Exception, SystemExit) as error:
        raise PluginError(f"{label}: importing {where} raised {reason(error)}") from error


# --- checking ----------------------------------------------------------------------------------------------------------


def _target(kind: PluginKind, found: Any, label: str) -> Callable[..., Any]:
    if kind in _PACKAGED:
        raise PluginError(f"{label} must be installed: make it a plugin, and type the name that it registers")
    base, parameters = BASES[kind], PARAMETERS.get(kind)
    if isinstance(found, base):
        return _always(found)
    if isinstance(found, type) or not callable(found) or parameters is None:
        function = f", or a function fn({', '.join(parameters)})" if parameters else ""
        if problem := class_problem(kind, found, function=function):
            raise PluginError(f"{label} {problem}")
        fitting: type = found
        return fitting
    try:
        inspect.signature(found).bind(*parameters)
    except TypeError as error:
        raise PluginError(f"{label} is a function that cannot be called as fn({', '.join(parameters)}): {error}") from error
    return wrap(kind, found)


def _always(made: Any) -> type:
    """Return a class whose every call returns the one instance: a configured object needs no constructor."""
    own = type(made)
    return type(own.__name__, (own,), {"__new__": lambda cls: made, "__doc__": own.__doc__, "__module__": own.__module__})


# --- describing --------------------------------------------------------------------------------------------------------


def _spec(kind: PluginKind, found: Any, target: Callable[..., Any], home: ModuleType | None, label: str) -> Spec:
    called = getattr(found, "__qualname__", None) or type(found).__qualname__
    summary = next(iter((getattr(found, "__doc__", None) or "").strip().splitlines()), "") or f"{called}, without a docstring"
    address = f"{getattr(home, '__name__', 'python')}:{called}"
    name = re.sub(r"[^a-z0-9_+.-]+", "_", called.rsplit(".", 1)[-1].lower()).lstrip("_+.-0123456789").rstrip("_+.-") or "unnamed"
    values: dict[str, Any] = {"name": name, "summary": summary, "target": address if "<" not in address else f"python:{name}"}
    if kind is PluginKind.REWARD:
        values["gives_accuracy"] = gives_accuracy(found) if inspect.isroutine(found) else getattr(found, "gives_accuracy", True)
    values |= {field: getattr(found, field) for field in SPEC_OF_KIND[kind].on_class if field not in values and hasattr(found, field)}
    for field in ("requires", "stop", "settings"):
        if isinstance(values.get(field), str):
            raise PluginError(f"{label}: {field} = {values[field]!r} must be a tuple of strings, ({values[field]!r},)")
        if field in values:
            values[field] = tuple(values[field])
    try:
        return SPEC_OF_KIND[kind](**values)
    except ValueError as error:
        raise PluginError(f"{label}: {error}") from error


def _file(home: ModuleType | None) -> str:
    return getattr(home, "__file__", None) or ""


def _source_hash(found: Any, home: ModuleType | None) -> str:
    path = _file(home)
    if path and Path(path).is_file():
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    try:
        return hashlib.sha256(inspect.getsource(found).encode()).hexdigest()
    except (OSError, TypeError):  # typed at a prompt: there is no source
        return ""


# --- shipping ----------------------------------------------------------------------------------------------------------


def shipped(target: Any, module: str, label: str) -> bytes:
    """Return bytes that ``pickle.loads`` turns back into the target in a process that lacks its source."""
    try:
        with _by_value(module):
            return bytes(cloudpickle.dumps(target))
    except Exception as error:
        raise PluginError(f"{label} cannot be sent to worker processes: {reason(error)}") from error


@contextmanager
def _by_value(name: str) -> Iterator[None]:
    module = sys.modules.get(name)
    if module is None or name in ("__main__", "builtins", "") or name in cloudpickle.list_registry_pickle_by_value():
        yield
        return
    cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        cloudpickle.unregister_pickle_by_value(module)
