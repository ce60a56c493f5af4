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

import rlcore
from rlcore.contracts.errors import ConfigError

if TYPE_CHECKING:
    from rlcore.host.registry import Attestation

__all__ = ["build_manifest", "resumed_manifest"]

_REQUIREMENT = re.compile(r"[\w.-]+")
_OF_AN_EXTRA = re.compile(r";.*\bextra\b")


def build_manifest(
    *, seed: int, data: Mapping[str, str], attestations: Iterable[Attestation], origins: Mapping[str, Any], command: list[str] | None = None
) -> dict[str, Any]:
    """A plain, JSON-able record. ``data`` maps a data set to its fingerprint."""
    plugins = [asdict(item) for item in attestations]
    return {
        "rlcore": rlcore.__version__,
        "python": sys.version.split()[0],
        "platform": platform.platform(),
        "packages": _packages(plugin["distribution"] for plugin in plugins),
        "seed": seed,
        "data": dict(data),
        "plugins": plugins,
        "origins": {path: str(origin) for path, origin in origins.items()},
        "command": command if command is not None else sys.argv,
    }


def resumed_manifest(root: Path, step: int, now: Mapping[str, Any]) -> dict[str, Any]:
    """The manifest of a run that goes on after ``step``: the first one, with what is other ``now`` as one more item of ``resumes``.

    Raises ConfigError if the data or the tokenizer are not those that the run began with."""
    path = root / "manifest.json"
    if not path.exists():  # killed before it was written
        return {**now, "resumes": [{"time": _time(), "step": step}]}
    first: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    for name, mark in first["data"].items():
        if not name.startswith("eval/") and now["data"].get(name, mark) != mark:
            raise ConfigError(f"{name} is not what the run {root} began with: restore it, or begin a new run with rlcore train")
    other = {key: value for key, value in now.items() if key != "origins" and json.loads(json.dumps(value)) != first.get(key)}
    return {**first, "resumes": [*first.get("resumes", ()), {"time": _time(), "step": step, **other}]}


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
