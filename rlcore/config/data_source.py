"""Find the data source that reads a data set: the one that is named, or else the one that claims the path's prefix or longest suffix.

If only a known plugin that is not installed claims the path, that plugin is returned. The path is not read as something else."""

from __future__ import annotations

from pathlib import Path

from rlcore.config.run_config import DataSource
from rlcore.contracts.errors import PluginError
from rlcore.contracts.specs import DataSourceSpec, PluginKind
from rlcore.registry.known_plugins import known_source
from rlcore.registry.plugin_registry import Registry

__all__ = ["is_file", "source_of", "source_spec"]


def source_of(source: DataSource, registry: Registry) -> str:
    """Return the name of the data source that reads the data set, installed or not. Raises PluginError if several claim the path."""
    if source.source != "auto":
        return source.source
    specs = [spec for spec in registry.specs(PluginKind.DATA, claimed=True) if isinstance(spec, DataSourceSpec)]
    claims = [(len(spec.prefix), spec.name) for spec in specs if spec.prefix and source.path.startswith(spec.prefix)]
    if not claims and Path(source.path).is_dir():
        claims = [(0, spec.name) for spec in specs if spec.folders]
    if not claims:
        claims = [(len(suffix), spec.name) for spec in specs for suffix in spec.suffixes if source.path.endswith(suffix)]
        if not any(length for length, _ in claims) and (known := known_source(source.path, folder=Path(source.path).is_dir())):
            return known
    best = sorted({name for length, name in claims if length == max(claims)[0]})
    if len(best) > 1:
        raise PluginError(
            f"{source.path} is claimed by the data sources {' and '.join(best)}; name one of them in a file: "
            f'dataset = [{{path = "{source.path}", source = "{best[0]}"}}]'
        )
    return best[0]


def source_spec(source: DataSource, registry: Registry) -> DataSourceSpec:
    """Return the spec of the data source that reads the data set."""
    spec = registry.spec(PluginKind.DATA, source_of(source, registry))
    assert isinstance(spec, DataSourceSpec)
    return spec


def is_file(source: DataSource, registry: Registry) -> bool:
    """Return whether the path is a local file or folder, rather than a name that only the data source can resolve.

    False if the data source is not installed."""
    if not registry.has(PluginKind.DATA, source_of(source, registry)):
        return False
    spec = source_spec(source, registry)
    return bool(spec.suffixes or spec.folders) and not (spec.prefix and source.path.startswith(spec.prefix))
