"""Which distributions every node must have for a run to mean the same there as here."""

from __future__ import annotations

from dataclasses import dataclass

from rlcore.config import Plan
from rlcore.runtimes.parts import used_plugins

__all__ = ["Packages", "packages_of"]

_CORE = "rlcore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """``requirements``: what pip installs; ``files``: unpackaged Python files, which every node must find under the same path."""

    requirements: tuple[str, ...]
    files: tuple[str, ...]


def packages_of(plan: Plan, extra: tuple[str, ...] = ()) -> Packages:
    """The plugins that the run uses, at the versions that this process attests, then ``extra`` requirements as they were typed."""
    requirements: list[str] = []
    files: list[str] = []
    for kind, name in used_plugins(plan):
        attested = plan.registry.attest(kind, name)
        if attested.source_sha256:
            files.append(attested.distribution)
        elif attested.distribution != _CORE:
            requirements.append(f"{attested.distribution}=={attested.version}")
    return Packages(requirements=tuple(dict.fromkeys([*requirements, *extra])), files=tuple(dict.fromkeys(files)))
