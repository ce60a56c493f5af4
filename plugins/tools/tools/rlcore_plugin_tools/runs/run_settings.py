"""Short names of settings, and their values as text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.api.settings import as_typed

__all__ = ["short_names", "value_text"]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Return path -> its last word, or the fewest last words that no other of these paths ends with."""
    parts = {path: path.split(".") for path in paths}

    def ends(count: int, path: str) -> str:
        return ".".join(parts[path][-count:])

    return {
        path: next(
            ends(count, path)
            for count in range(1, len(parts[path]) + 1)
            if count == len(parts[path]) or sum(ends(count, other) == ends(count, path) for other in paths) == 1
        )
        for path in paths
    }


def value_text(settings: Mapping[str, Any], path: str) -> str:
    """Return the value as it is typed after a flag; a dash if the run has no such setting."""
    return as_typed(settings[path]) if path in settings else "–"
