"""What a run was made of: versions, plugins as attested, seed, data, machine. Enough to tell two runs apart a year later."""

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
    *,
    seed: int,
    data: Mapping[str, str],
    attestations: Iterable[Attestation],
    origins: Mapping[str, Any],
    planned_steps: int,
    command: list[str] | None = None,
) -> dict[str, Any]:
    """A plain, JSON-able record. ``data`` maps a data set to its fingerprint; ``planned_steps``: the updates that are to be made."""
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
        "command": command if command is not None else sys.argv,
    }


class _Plugin(BaseModel):
    distribution: str
    version: str


class _Resume(BaseModel):
    settings: dict[str, tuple[str, str]] = {}


class _Manifest(BaseModel):
    """The shape of what is read of a manifest."""

    rlcore: str
    data: dict[str, str]
    plugins: list[_Plugin]
    origins: dict[str, str]
    resumes: list[_Resume] = []


def read_manifest(root: Path) -> dict[str, Any] | None:
    """The manifest of a run; None if the run was killed before it was written. ConfigError if it cannot be read."""
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
    """Path -> value, as typed after a flag, of each setting that the run has changed since it began: what it was then."""
    resumes = (read_manifest(root) or {}).get("resumes", ())
    return {path: old for item in reversed(resumes) for path, (old, _) in item.get("settings", {}).items()}


def resumed_manifest(root: Path, step: int, now: Mapping[str, Any], settings: Mapping[str, tuple[str, str]]) -> dict[str, Any]:
    """The manifest of a run that goes on after ``step``: the first one, with what is other ``now`` and the changed ``settings`` (path ->
    what it was, what it is) as one more item of ``resumes``.

    Raises ConfigError if the data or the tokenizer are not those that the run began with."""
    first, again = read_manifest(root), {"time": _time(), "step": step, "settings": dict(settings)}
    if first is None:
        return {**now, "resumes": [again]}
    for name, mark in first["data"].items():
        if not name.startswith("eval/") and now["data"].get(name, mark) != mark:
            raise ConfigError(f"{name} is not what the run {root} began with: restore it, or begin a new run with rlcore train")
    other = {key: value for key, value in now.items() if key != "origins" and json.loads(json.dumps(value)) != first.get(key)}
    return {**first, "resumes": [*first.get("resumes", ()), {**again, **other}]}


def _time() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")


def _packages(plugins: Iterable[str]) -> dict[str, str]:
    """Name -> version of every package that rlcore and the plugins of the run require, and that these require in turn; what an extra of a
    plugin brings too, since that is its engine."""
    strangers = {name for name in plugins if name != "rlcore"}
    found: dict[str, str] = {}
    names = ["rlcore", *strangers]
    for name in names:  # grows while it is read
        key = re.sub(r"[-_.]+", "-", name).lower()
        if key in found:
            continue
        try:
            package = distribution(name)
        except PackageNotFoundError:  # of an extra, of another platform, or the path of an unpackaged file
            continue
        found[key] = package.version
        required = [line for line in package.requires or () if name in strangers or not _OF_AN_EXTRA.search(line)]
        names += [match[0] for match in map(_REQUIREMENT.match, required) if match]
    return dict(sorted(found.items()))
