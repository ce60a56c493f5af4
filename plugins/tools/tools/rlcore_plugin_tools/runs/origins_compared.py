"""Compares settings, versions, the code of plugins, and data of runs. Only differences are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore_plugin_tools.runs.seed_groups import SeedGroup
from rlcore_plugin_tools.settings_compared import SEED, differing_settings

__all__ = ["Difference", "data_differences", "plugin_differences", "setting_differences", "version_differences"]


@dataclass(frozen=True, slots=True)
class Difference:
    """``values``: one per group; None if a group has no such entry."""

    name: str
    values: tuple[Any, ...]

    def as_json(self) -> dict[str, Any]:
        """Return plain data."""
        return {"name": self.name, "values": list(self.values)}


def setting_differences(groups: Sequence[SeedGroup]) -> list[Difference]:
    """Return differences by the path of the setting; the seed does not count if runs are grouped by it."""
    grouped = any(len(group.runs) > 1 for group in groups)
    return [found for found in _different([group.runs[0].settings for group in groups]) if not (grouped and found.name == SEED)]


def version_differences(groups: Sequence[SeedGroup]) -> list[Difference]:
    """Return differences of rlcore, Python, platform and packages, from the manifests."""
    return _different([_of_all(group, _versions) for group in groups])


def plugin_differences(groups: Sequence[SeedGroup]) -> list[Difference]:
    """Return differences by kind and name: the distribution, its version, and the hashes of its code and of its spec."""
    return _different([_of_all(group, _plugins) for group in groups])


def data_differences(groups: Sequence[SeedGroup]) -> list[Difference]:
    """Return differences between fingerprints of data sets and of the tokenizer."""
    return _different([_of_all(group, lambda manifest: manifest.get("data", {})) for group in groups])


def _different(columns: Sequence[Mapping[str, Any]]) -> list[Difference]:
    return [Difference(name, tuple(column.get(name) for column in columns)) for name in differing_settings(columns)]


def _of_all(group: SeedGroup, read: Callable[[Mapping[str, Any]], Mapping[str, Any]]) -> dict[str, Any]:
    """Return the entries of a group. If its runs differ in one, its value is a list of all their values, which no other group equals by
    chance."""
    found = [read(run.manifest) for run in group.runs if run.manifest]
    names = dict.fromkeys(name for of_run in found for name in of_run)
    merged = {}
    for name in names:
        values = list(dict.fromkeys(of_run.get(name) for of_run in found))
        merged[name] = values[0] if len(values) == 1 else ", ".join(sorted(map(str, values)))
    return merged


def _versions(manifest: Mapping[str, Any]) -> dict[str, str]:
    own = {name: manifest[name] for name in ("python", "platform") if name in manifest}
    return {"rlcore": manifest.get("rlcore", ""), **own, **manifest.get("packages", {})}


def _plugins(manifest: Mapping[str, Any]) -> dict[str, str]:
    return {f"{plugin.get('kind')} {plugin.get('name')}": _attested(plugin) for plugin in manifest.get("plugins", ())}


def _attested(plugin: Mapping[str, Any]) -> str:
    code = plugin.get("source_sha256") or ""
    marks = [f"code {code[:12]}"] if code else []
    marks += [f"spec {plugin['spec_sha256'][:12]}"] if plugin.get("spec_sha256") else []
    return " ".join([f"{plugin.get('distribution')} {plugin.get('version')}", *marks])
