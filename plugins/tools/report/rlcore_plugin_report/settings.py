"""Settings of runs beside each other: flat, which runs differ by nothing but their seed, and what tells the others apart."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["flat", "groups_by_seed", "settings_that_differ"]

_SEED = "run.seed"
_PLACES = frozenset({"run.run_dir", "log.save_dir", "log.eval_save_dir", "log.rollout_save_dir"})
"""Where a run writes: it says nothing of what the run is."""


def flat(config: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """``{"run": {"seed": 1}, "rewards": [{"name": "boxed"}]}`` -> ``{"run.seed": 1, "rewards[0].name": "boxed"}``. A list of plain values,
    and an empty table, stay one value."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        if isinstance(value, Mapping) and value:
            found |= flat(value, path)
        elif isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
            for number, item in enumerate(value):
                found |= flat(item, f"{path}[{number}]")
        else:
            found[path] = value
    return found


def groups_by_seed(configs: Sequence[Mapping[str, Any]]) -> list[list[int]]:
    """Indices of flat configurations that are equal but for the seed and for where they write, in the order of their first."""
    groups: dict[str, list[int]] = {}
    for index, config in enumerate(configs):
        groups.setdefault(json.dumps(_without(config, {_SEED, *_PLACES}), sort_keys=True, default=str), []).append(index)
    return list(groups.values())


def settings_that_differ(configs: Sequence[Mapping[str, Any]]) -> list[str]:
    """Paths whose values are not the same in all flat configurations, where they write left out."""
    paths = dict.fromkeys(path for config in configs for path in config if path not in _PLACES)
    return [
        path
        for path in paths
        if any(config.get(path) != configs[0].get(path) or (path in config) != (path in configs[0]) for config in configs)
    ]


def _without(config: Mapping[str, Any], left_out: set[str]) -> dict[str, Any]:
    return {path: value for path, value in config.items() if path not in left_out}
