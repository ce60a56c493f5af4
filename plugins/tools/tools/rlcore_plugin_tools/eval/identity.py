"""All that the answers of an evaluation depend on: a resumed evaluation must not differ in it, and a comparison shows the differences."""

from __future__ import annotations

import hashlib
import platform
import tomllib
from collections.abc import Iterator, Mapping
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
_DATA = ("data.dataset", "eval.eval_dataset")
_MOST_BYTES = 4 << 20  # of a named file: code is smaller, and data sets have fingerprints


def evaluation_identity(plan: Plan, fingerprints: Mapping[str, str]) -> dict[str, Any]:
    """Return settings by path, the files of the model, versions, plugins, the ``fingerprints`` of data sets and tokenizer, and digests of
    files that settings name."""
    settings = flat_settings(tomllib.loads(plan.to_toml()))
    attested = [plan.registry.attest(kind, name) for kind, name in plugins_of(plan)]
    return {
        "settings": {path: value for path, value in settings.items() if reads(path.partition("[")[0]) and path not in _FREE},
        "files": _files(Path(str(plan.config.model.model))),
        "versions": {"python": platform.python_version(), "rlcore": version("rlcore")},
        "plugins": [{**asdict(one), "kind": one.kind.value} for one in attested],
        "data": {**fingerprints, **_named_files(settings)},
    }


def _named_files(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return digests of files that settings name, such as the script of an agent, a grader, or the module of a taskset."""
    found = {}
    told = [text for path, value in settings.items() for text in _texts(value) if not path.startswith(_DATA) or text.startswith("env:")]
    for text in sorted(set(told)):
        name = text.split(":", 2)[-1].partition("?")[0] if text.startswith("env:") else text
        path = Path(name)
        try:
            if path.suffix and path.is_file() and path.stat().st_size <= _MOST_BYTES:
                found[f"file {name}"] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
        except (OSError, ValueError):  # not a path, or one that nothing here may read
            continue
    return found


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from _texts(list(value.values()))
    elif isinstance(value, list | tuple):
        for one in value:
            yield from _texts(one)


def _files(folder: Path) -> dict[str, str]:
    """Return size and time of the model's files by name; {} for one from the hub."""
    found = sorted(folder.iterdir()) if folder.is_dir() else []
    return {file.name: f"{state.st_size} bytes, {state.st_mtime_ns}" for file in found if file.is_file() for state in [file.stat()]}
