"""What a run was made of: versions, plugins as attested, seed, data, machine. Enough to tell two runs apart a year later."""

from __future__ import annotations

import platform
import re
import sys
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING, Any

import rlcore

if TYPE_CHECKING:
    from rlcore.host.registry import Attestation

__all__ = ["build_manifest"]

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
