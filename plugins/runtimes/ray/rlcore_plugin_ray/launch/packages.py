"""The distributions that every node must have, so that the run means the same there as here."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.metadata import version

from rlcore.api.runtime import Plan, used_plugins

__all__ = ["Packages", "packages_of"]

_CORE = "rlcore"


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    """The packages of a run. ``versions``: the distributions that every node must have, rlcore first, each as ``name==version``. ``extra``:
    the packages that pip must install, as typed. ``files``: unpackaged Python files, which every node must find under the same path."""

    versions: tuple[str, ...]
    files: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()


def packages_of(plan: Plan, extra: tuple[str, ...] = ()) -> Packages:
    """Return rlcore and the plugins that the run uses, at the versions that this process attests; ``extra`` as typed."""
    versions = [f"{_CORE}=={version(_CORE)}"]
    files: list[str] = []
    for kind, name in used_plugins(plan):
        attested = plan.registry.attest(kind, name)
        if attested.source_sha256:
            files.append(attested.distribution)
        elif attested.distribution != _CORE:
            versions.append(f"{attested.distribution}=={attested.version}")
    return Packages(versions=tuple(dict.fromkeys(versions)), files=tuple(dict.fromkeys(files)), extra=tuple(dict.fromkeys(extra)))
