"""Settings of several runs: which ones differ, and what to call them in little room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlcore.api.settings import spoken

__all__ = ["PLACES", "differing", "flat", "short_names", "value_text"]

PLACES = frozenset(
    {"run.project", "run.run_dir", "run.ray_dir", "run.master_address", "run.master_port"}
    | {"log.save_dir", "log.rollout_save_dir", "eval.eval_save_dir"}
)
"""Settings that say where a run happened and not what it was."""


def flat(config: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Path -> value of every leaf: ``training.learning_rate``, ``rewards[0].weight``; PLACES left out."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        for path, item in _items(f"{start}{key}", value):
            found |= flat(item, f"{path}.") if isinstance(item, Mapping) else {path: item}
    return {path: value for path, value in found.items() if path not in PLACES}


def _items(path: str, value: Any) -> list[tuple[str, Any]]:
    """The value itself; of a list of tables each of them, by its place."""
    tables = isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    return [(f"{path}[{place}]", item) for place, item in enumerate(value)] if tables else [(path, value)]


def differing(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """The paths that are not in all with the same value, in the order of the first that has them."""
    paths = dict.fromkeys(path for of_run in settings for path in of_run)
    return [path for path in paths if any(path not in of_run or of_run[path] != settings[0].get(path) for of_run in settings)]


def short_names(paths: Sequence[str]) -> dict[str, str]:
    """Path -> its last word, or as many of its last words as no other of these paths ends with."""
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
    """The value as it is typed after a flag; a dash if the run has no such setting."""
    return spoken(settings[path]) if path in settings else "–"
