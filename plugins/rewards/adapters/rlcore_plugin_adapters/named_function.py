"""Finds a user's function by its name, inspects its signature, calls it, and converts its result to a ``Score``."""

from __future__ import annotations

import asyncio
import hashlib
import importlib
import importlib.util
import inspect
import math
import sys
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from rlcore.api import Outcome, PluginError, Score

__all__ = ["NamedFunction", "column_at", "number_or_none", "plain_score"]


@dataclass(frozen=True)
class NamedFunction:
    """A function that is called with keywords only. ``named``: the parameters of its signature; ``required``: those without a default;
    ``open``: it also takes any other keyword."""

    reference: str
    function: Callable[..., Any]
    named: frozenset[str]
    required: frozenset[str]
    open: bool

    @classmethod
    def load(cls, reference: str) -> NamedFunction:
        """Import the function; PluginError, in one sentence, if it cannot be imported or is not a function."""
        where, _, name = reference.rpartition(":")
        found: Any = _module(where, reference)
        for part in name.split("."):
            if not hasattr(found, part):
                raise PluginError(f"function {reference!r}: {where} has no {name!r}")
            found = getattr(found, part)
        if not callable(found):
            raise PluginError(f"function {reference!r} is of type {type(found).__name__}; it must be a function")
        return cls.of(found, reference)

    @classmethod
    def of(cls, found: Callable[..., Any], reference: str) -> NamedFunction:
        """Return a function with its signature. ``reference``: its name in messages."""
        parameters = inspect.signature(found).parameters.values()
        plain = [one for one in parameters if one.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)]
        return cls(
            reference=reference,
            function=found,
            named=frozenset(one.name for one in plain),
            required=frozenset(one.name for one in plain if one.default is inspect.Parameter.empty),
            open=any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters),
        )

    def refuse_other_keywords(self, given: Collection[str], optional: Collection[str], caller: str) -> None:
        """Raise PluginError if a call by keywords cannot work, before any row is judged. ``given`` are always passed, ``optional`` if they
        are requested."""
        asked = ", ".join(sorted(self.named)) or "nothing by name"
        if lacks := [] if self.open else [name for name in given if name not in self.named]:
            raise PluginError(
                f"function {self.reference!r} takes {asked}; {caller} calls it by keywords, so it must also take {' and '.join(lacks)}, "
                "or **kwargs"
            )
        if needs := sorted(self.required - {*given, *optional}):
            raise PluginError(f"function {self.reference!r} needs {' and '.join(needs)}, which {caller} does not pass")

    def call(self, given: Mapping[str, Any], *, always: Collection[str] = ()) -> Any:
        """Call the function and return its result, awaited if necessary. It receives the part of ``given`` that it can take, and those of
        ``always`` in any case."""
        taken = {name: value for name, value in given.items() if self.open or name in self.named or name in always}
        try:
            result = self.function(**taken)
            return asyncio.run(_awaited(result)) if inspect.isawaitable(result) else result
        except KeyError as error:
            if error.args and isinstance(error.args[0], str) and error.args[0] not in given and self.open:
                raise KeyError(
                    f'{error.args[0]!r}: if that is a column of the row, set columns = ["{error.args[0]}"] in the options, '
                    f"since the signature of {self.reference} does not name it"
                ) from error
            raise


async def _awaited(result: Any) -> Any:
    return await result


def _module(where: str, reference: str) -> ModuleType:
    try:
        return _of_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    except (Exception, SystemExit) as error:
        raise PluginError(f"function {reference!r}: importing {where} raised {type(error).__name__}: {error}") from error


def _of_file(path: Path) -> ModuleType:
    """Import the file as a module with a unique name; it can import files next to it, as if it were run."""
    name = f"rlcore_adapted_{hashlib.sha256(str(path).encode()).hexdigest()[:12]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} cannot be read as Python")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look up their module while it is being executed
    if str(path.parent) not in sys.path:
        sys.path.append(str(path.parent))
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def column_at(columns: Mapping[str, Any], path: str) -> Any:
    """Return the value of a column, in which dots go into objects; None if there is none."""
    found: Any = columns
    for part in path.split("."):
        found = found.get(part) if isinstance(found, Mapping) else None
    return found


def number_or_none(value: Any, what: str) -> float | None:
    """Return a number of any kind (also of numpy or torch) as float; None for None and NaN; TypeError, naming ``what``, for anything
    else."""
    if value is None:
        return None
    if isinstance(value, str | bytes):  # "nan", too, would be taken for a number
        raise TypeError(f"{what} is the text {value[:40]!r}; it must be a number")
    try:
        number = float(value)
    except (TypeError, ValueError) as error:
        raise TypeError(f"{what} is a {type(value).__name__}; it must be a number") from error
    return None if math.isnan(number) else number


def plain_score(value: float, *, right: float, **more: Any) -> Score:
    """Return a verdict: right, with accuracy 1, from that value on."""
    outcome = Outcome.OK if value >= right else Outcome.WRONG
    return Score(**{"value": value, "accuracy": float(value >= right), "outcome": outcome, **more})
