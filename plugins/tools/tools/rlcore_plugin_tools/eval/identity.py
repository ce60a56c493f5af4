"""All that the answers of an evaluation depend on: a resumed evaluation must not differ in it, and a comparison shows the differences."""

from __future__ import annotations

import platform
import tomllib
from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from rlcore.api.commands import Plan
from rlcore_plugin_tools.eval.eval_plan import plugins_of, reads
from rlcore_plugin_tools.settings_compared import flat_settings

__all__ = ["evaluation_identity"]

_FREE = frozenset(
    {
        *("schedule.producer_deadline", "schedule.producer_load_deadline", "schedule.reward_workers", "schedule.reward_worker_items"),
        *("sampling.options.workers", "sampling.options.episodes_per_process", "sampling.options.gateways"),
    }
)
"""Settings that change how fast an evaluation is, and no answer. The number of engines is one too, which ``reads`` leaves out."""


def evaluation_identity(plan: Plan, fingerprints: Mapping[str, str]) -> dict[str, Any]:
    """Return settings by path, the files of the model, versions, plugins, and the ``fingerprints`` of data sets and tokenizer."""
    settings = flat_settings(tomllib.loads(plan.to_toml()))
    attested = [plan.registry.attest(kind, name) for kind, name in plugins_of(plan)]
    return {
        "settings": {path: value for path, value in settings.items() if reads(path.partition("[")[0]) and path not in _FREE},
        "files": _files(Path(str(plan.config.model.model))),
        "versions": {"python": platform.python_version(), "rlcore": version("rlcore")},
        "plugins": [{**asdict(one), "kind": one.kind.value} for one in attested],
        "data": dict(fingerprints),
    }


def _files(folder: Path) -> dict[str, str]:
    """Return size and time of the model's files by name; {} for one from the hub."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {file.name: f"{state.st_size} bytes, {state.st_mtime_ns}" for file in found if file.is_file() for state in [file.stat()]}
