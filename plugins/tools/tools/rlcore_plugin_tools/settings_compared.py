"""Compares the settings of several runs: by path, which ones differ, and which runs differ only by their seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["SEED", "differing_settings", "flat_settings", "groups_by_seed"]

SEED = "run.seed"
_PLACES = frozenset(
    {"run.project", "run.run_dir", "run.ray_dir", "run.master_address", "run.master_port"}
    | {"log.save_dir", "log.rollout_save_dir", "eval.eval_save_dir"}
)
"""Settings that say where a run happened, not what it did."""


def flat_settings(config: Mapping[str, Any], start: str = "") -> dict[str, Any]:
    """Return path -> value of every leaf: ``training.learning_rate``, ``rewards[0].weight``; a list of plain values is one leaf."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        for path, item in _items(f"{start}{key}", value):
            found |= flat_settings(item, f"{path}.") if isinstance(item, Mapping) else {path: item}
    return found


def _items(path: str, value: Any) -> list[tuple[str, Any]]:
    """Return the value itself; for a list of tables, each table with its index."""
    tables = isinstance(value, list) and bool(value) and all(isinstance(item, Mapping) for item in value)
    return [(f"{path}[{place}]", item) for place, item in enumerate(value)] if tables else [(path, value)]


def differing_settings(settings: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the paths that do not have the same value in all runs, in the order of the first run that has them. Settings of the run's
    place are left out."""
    paths = dict.fromkeys(path for of_run in settings for path in of_run if path not in _PLACES)
    return [path for path in paths if any(path not in of_run or of_run[path] != settings[0].get(path) for of_run in settings)]


def groups_by_seed(settings: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Return indexes of the runs that differ only by their seed, in the order of their first run. The same seed twice is in two groups."""
    groups: list[list[int]] = []
    for place, of_run in enumerate(settings):
        like = (group for group in groups if all(differing_settings([settings[other], of_run]) == [SEED] for other in group))
        if (group := next(like, None)) is None:
            groups.append([place])
        else:
            group.append(place)
    return groups
