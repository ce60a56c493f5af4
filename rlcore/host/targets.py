"""``"package.module:attribute"``, as specs name what a plugin offers: imported, or looked for without importing it."""

from __future__ import annotations

import importlib
import importlib.util
import symtable
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import PluginError
from rlcore.host.blame import closest, reason

__all__ = ["load_target", "missing_target"]


def load_target(address: str, label: str) -> Any:
    """Import the module and return its attribute, which may be dotted.

    ``label`` begins the sentence of an error: "reward 'boxed': its target 'm:Boxed'".

    :raises PluginError: the module cannot be imported, or has no such attribute.
    """
    module, _, path = address.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except (Exception, SystemExit) as error:
        raise PluginError(f"{label} cannot be imported: {reason(error)}") from error
    for part in path.split("."):
        if not hasattr(found, part):
            raise PluginError(f"{label} does not exist{closest(part, dir(found))}")
        found = getattr(found, part)
    return found


def missing_target(address: str, label: str) -> str:
    """A sentence if the target is not there, "" if it is, or if only an import could tell. Imports nothing: targets may be heavy."""
    module, _, path = address.partition(":")
    try:
        place = _locate(module)
    except (ImportError, ValueError) as error:
        return f"{label} cannot be looked up: {error}"
    if place is None:
        return f"{label} does not exist: there is no module {module!r}"
    if not place.origin or not place.origin.endswith(".py"):
        return ""
    try:
        source = importlib.util.decode_source(Path(place.origin).read_bytes())
        symbols = symtable.symtable(source, place.origin, "exec").get_symbols()
    except (SyntaxError, UnicodeDecodeError) as error:
        return f"{label} has a syntax error: {reason(error).removeprefix('SyntaxError: ')}"
    names = {symbol.get_name() for symbol in symbols if symbol.is_assigned() or symbol.is_imported()}
    made_at_run_time = "__getattr__" in names or "import *" in source
    first = path.partition(".")[0]
    return "" if first in names or made_at_run_time else f"{label} does not exist{closest(first, names)}"


def _locate(module: str) -> ModuleSpec | None:
    """Find a module's file without importing its parents, which may be heavy."""
    parts = module.split(".")
    spec = importlib.util.find_spec(parts[0])
    for end in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[:end]), spec.submodule_search_locations)
    return spec
