"""The inputs of a run: versions, attested plugins, seed, data and machine. They are enough to tell two runs apart later."""

from __future__ import annotations

import json
import platform
import re
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ValidationError

import rlcore
from rlcore.contracts.errors import ConfigError
from rlcore.host.bounded_reading import json_document

if TYPE_CHECKING:
    from rlcore.registry.plugin_registry import Attestation

__all__ = ["build_manifest", "original_settings", "read_manifest", "resumed_manifest"]

_REQUIREMENT = re.compile(r"[\w.-]+")
_OF_AN_EXTRA = re.compile(r";.*\bextra\b")


def build_manifest(
    *, seed: int, data: Mapping[str, str], attestations: Iterable[Attestation], origins: Mapping[str, Any], planned_steps: int
) -> dict[str, Any]:
    """Return a JSON-serializable record.

    :param data: the fingerprint of each data set.
    :param planned_steps: the number of planned updates."""
    plugins = [asdict(item) for item in attestations]
    return {
        "rlcore": rlcore.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": _packages(plugin["distribution"] for plugin in plugins),
        "seed": seed,
        "planned_steps": planned_steps,
        "data": dict(data),
        "plugins": plugins,
        "origins": {path: str(origin) for path, origin in origins.items()},
        "command": sys.argv,
    }


class _Plugin(BaseModel):
    distribution: str
    version: str


class _Resume(BaseModel):
    settings: dict[str, tuple[str, str]] = {}


class _Manifest(BaseModel):
    """The schema of the values that are read from a manifest."""

    rlcore: str
    data: dict[str, str]
    plugins: list[_Plugin]
    origins: dict[str, str]
    resumes: list[_Resume] = []


def read_manifest(root: Path) -> dict[str, Any] | None:
    """Return the manifest of a run, or None if the run was killed before writing it. Raises ConfigError if it cannot be read."""
    path = root / "manifest.json"
    try:
        found: dict[str, Any] = json_document(path)
        _Manifest.model_validate(found)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:  # a ValidationError is a ValueError
        problem = f"{list(error.errors()[0]['loc'])}: {error.errors()[0]['msg']}" if isinstance(error, ValidationError) else error
        raise ConfigError(f"{path} cannot be read ({problem}); restore or remove it") from None
    return found


def original_settings(root: Path) -> dict[str, str]:
    """Return the initial value, as typed after a flag, of each setting that the run has changed since it began, by path."""
    resumes = (read_manifest(root) or {}).get("resumes", ())
    return {path: old for item in reversed(resumes) for path, (old, _) in item.get("settings", {}).items()}


def resumed_manifest(root: Path, step: int, now: Mapping[str, Any], settings: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """Return the manifest of a run that resumes after ``step``: the first manifest with one more item in ``resumes``.

    The item holds the values that differ ``now`` and the changed ``settings`` (path -> old value, new value). Raises ConfigError if the
    data or the tokenizer differ from those that the run began with."""
    first, again = read_manifest(root), {"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "step": step, "settings": dict(settings)}
    if first is None:
        return {**now, "resumes": [again]}
    for name, mark in first["data"].items():
        if not name.startswith("eval/") and now["data"].get(name, mark) != mark:
            raise ConfigError(f"{name} has changed since the run {root} began: restore it, or begin a new run with rlcore train")
    other = {key: value for key, value in now.items() if key != "origins" and json.loads(json.dumps(value)) != first.get(key)}
    return {**first, "resumes": [*first.get("resumes", ()), {**again, **other}]}


def _packages(plugins: Iterable[str]) -> dict[str, str]:
    """Return name -> version of every package that rlcore and the run's plugins require, directly or indirectly.

    Includes the packages that a plugin's extras install, because they contain its engine."""
    strangers = {name for name in plugins if name != "rlcore"}
    found: dict[str, str] = {}
    names = ["rlcore", *strangers]
    for name in names:  # grows during the loop
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:  # of an extra or another platform, or the path of an unpackaged file
            continue
        found[key] = package.version
        required = [line for line in package.requires or () if name in strangers or not _OF_AN_EXTRA.search(line)]
        names += [match[0] for match in map(_REQUIREMENT.match, required) if match]
    return dict(sorted(found.items()))
