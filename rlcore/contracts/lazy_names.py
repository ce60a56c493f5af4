"""Public names of a package, which are written once: as imports for type checkers. Each is imported when it is first used.

A package writes ``from x import A as A`` under ``if TYPE_CHECKING:``; type checkers and editors read that, and the form ``as A`` re-exports
the name under ``mypy --strict``. At run time ``lazy_names`` reads the same lines. A stub file (``lazy_loader``) would hold every name that
is not imported a second time, and would be one more dependency. The parse costs half a millisecond a package.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any

__all__ = ["lazy_names"]


def lazy_names(package: str, *own: str, listed: bool = True) -> tuple[Callable[[str], Any], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package: the names that it imports for type checkers, and its ``own``.

    ``listed``: whether ``dir`` shows the names that are imported on use. ``help`` prints the whole class of each name that ``dir`` shows.
    """
    module = sys.modules[package]
    homes = _homes(package)

    def get(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    def names() -> list[str]:
        return sorted({*vars(module), *homes} if listed else set(vars(module)) - set(homes))

    return get, names, sorted([*homes, *own])


def _homes(package: str) -> dict[str, str]:
    """Return the module of each name that the package imports under ``if TYPE_CHECKING:``."""
    spec = sys.modules[package].__spec__
    source = spec.loader.get_source(package) if spec and spec.loader and hasattr(spec.loader, "get_source") else None
    if source is None:
        raise ImportError(f"{package} needs its source file, from which it reads its public names")
    blocks = [node for node in ast.parse(source).body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"]
    imports = [node for block in blocks for node in block.body if isinstance(node, ast.ImportFrom) and node.module]
    return {alias.name: node.module for node in imports if node.module for alias in node.names}
