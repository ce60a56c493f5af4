"""What discovery does not check because it would have to import: whether each target exists and each options model is one.

Targets are looked for in the source text, so that listing plugins stays light; options models, light by contract, are imported.
"""

from __future__ import annotations

import ast
import importlib.util
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

from rlcore.blame import closest
from rlcore.catalogue import LABELS
from rlcore.errors import PluginError
from rlcore.registry import Registry
from rlcore.specs import PluginKind, Spec

__all__ = ["audit", "missing_target"]


def audit(registry: Registry) -> dict[tuple[PluginKind, str], list[str]]:
    """(kind, name) -> one sentence for each reason why it cannot work."""
    found: dict[tuple[PluginKind, str], list[str]] = {}
    for kind in PluginKind:
        for name in registry.names(kind):
            try:
                spec = registry.spec(kind, name)
            except PluginError:  # a clash, which registry.problems() reports
                continue
            problems = [missing_target(spec, f"{LABELS[kind]} {name!r}")]
            try:
                registry.options_model(kind, name)
            except PluginError as error:
                problems.append(str(error))
            found[kind, name] = [problem for problem in problems if problem]
    return found


def missing_target(spec: Spec, label: str) -> str:
    """A sentence where the spec's target is not there, "" where it is or where only an import could tell."""
    if not spec.target:
        return ""
    module, _, path = spec.target.partition(":")
    try:
        place = _locate(module)
    except (ImportError, ValueError) as error:
        return f"{label}: its target {spec.target!r} cannot be looked up: {error}"
    if place is None:
        return f"{label}: its target {spec.target!r} does not exist: there is no module {module!r}"
    if not place.origin or not place.origin.endswith(".py"):
        return ""
    try:
        names = _bound(ast.parse(Path(place.origin).read_bytes()))
    except SyntaxError as error:
        return f"{label}: its target {spec.target!r} has a syntax error: {error.msg} ({Path(place.origin).name}, line {error.lineno})"
    first = path.partition(".")[0]
    if names is None or first in names:
        return ""
    return f"{label}: its target {spec.target!r} does not exist{closest(first, names)}"


def _locate(module: str) -> ModuleSpec | None:
    """Find a module's file without importing its parents, which may be heavy."""
    parts = module.split(".")
    spec = importlib.util.find_spec(parts[0])
    for end in range(2, len(parts) + 1):
        if spec is None or spec.submodule_search_locations is None:
            return None
        spec = PathFinder.find_spec(".".join(parts[:end]), spec.submodule_search_locations)
    return spec


def _bound(tree: ast.Module) -> set[str] | None:
    """Names that a module binds anywhere outside functions and classes; None where it may bind others as it runs."""
    names: set[str] = set()
    todo: list[ast.AST] = list(tree.body)
    while todo:
        node = todo.pop()
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                if name == "__getattr__":
                    return None
                names.add(name)
            case ast.ImportFrom(names=aliases) | ast.Import(names=aliases):
                if any(alias.name == "*" for alias in aliases):
                    return None
                names |= {(alias.asname or alias.name).partition(".")[0] for alias in aliases}
            case ast.Name(id=name, ctx=ast.Store()):
                names.add(name)
            case _:
                todo += ast.iter_child_nodes(node)
    return names
