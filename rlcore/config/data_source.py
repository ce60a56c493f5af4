"""Find the data source that reads a data set: the one that is named, or else the one that claims the path's prefix or longest suffix.

If only a known plugin that is not installed claims the path, that plugin is returned. The path is not read as something else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rlcore.config.run_config import DataSource, RunConfig
from rlcore.contracts.errors import ConfigError, PluginError
from rlcore.contracts.specs import DataSourceSpec, PluginKind, SamplerSpec
from rlcore.registry.known_plugins import known_source
from rlcore.registry.plugin_registry import Registry

__all__ = ["check_endless", "endless_notes", "is_endless", "is_file", "order_of", "source_of", "source_spec"]


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


def is_endless(source: DataSource, registry: Registry, max_rows: int | None) -> bool:
    """Return whether the prompts of the data set are made without end: its data source declares this, and ``max_rows`` does not bound it.

    False if the data source is not installed."""
    return max_rows is None and registry.has(PluginKind.DATA, source_of(source, registry)) and source_spec(source, registry).endless


def order_of(config: RunConfig, registry: Registry) -> str:
    """Return the name of the sampler: that of ``data.order``, or for endless data "sequential" if none is named."""
    endless = any(is_endless(source, registry, config.data.max_rows) for source in config.data.sources)
    return "sequential" if endless and config.data.sampler == "auto" else config.data.order


def check_endless(config: RunConfig, registry: Registry, cite: Callable[[str], str], *, trains: bool = True) -> None:
    """Raise ConfigError if a setting does not fit an endless data set.

    :param trains: whether the run needs an end."""
    data = config.data
    for task, path in config.eval.eval_dataset.items():
        if is_endless(DataSource(path=path), registry, data.max_rows):
            also = "" if trains else ", or type --max-rows 100"
            raise ConfigError(f"the evaluation task {task}: {path} has no end, and an evaluation does; name a data set that ends{also}")
    endless = [source for source in data.sources if is_endless(source, registry, data.max_rows)]
    for source in endless:
        bound = "or --max-rows 1000, which reads its first 1000 rows"
        if len(data.sources) > 1 or source.repeat != 1:
            raise ConfigError(
                f"{source.path} has no end, so it can be no part of a list; name it alone, make each of them one of [[sources]], {bound}"
            )
        if trains and config.run.max_steps is None:
            raise ConfigError(f"{source.path} has no end, so the run would have none; type --max-steps 200, {bound}")
        for name in ("bad_rows", "overlong"):
            if getattr(data, name) == "drop":
                typed = f"--{name.replace('_', '-')} refuse"
                raise ConfigError(f"{cite(f'data.{name}')}: {source.path} has no end, so what to drop is not known; type {typed}, {bound}")
    if trains:
        _check_sampler(config, registry, cite, bool(endless))


def _check_sampler(config: RunConfig, registry: Registry, cite: Callable[[str], str], endless: bool) -> None:
    """Raise ConfigError if the sampler declares that it draws from other data. A plugin that is not installed is not known to."""
    kinds = [(PluginKind.DATA, source_of(source, registry)) for source in config.data.sources]
    name = order_of(config, registry)
    if not kinds or not all(registry.has(kind, one) for kind, one in [*kinds, (PluginKind.SAMPLER, name)]):
        return
    spec = registry.spec(PluginKind.SAMPLER, name)
    assert isinstance(spec, SamplerSpec)
    if spec.endless is not None and spec.endless != endless:
        ends = f"ends after {config.data.max_rows} rows" if config.data.max_rows else "ends"
        draws, is_so, typed = ("without end", ends, "shuffled") if spec.endless else ("that ends", "has no end", "sequential")
        raise ConfigError(
            f"{cite('data.sampler')}: the sampler {spec.name} draws from data {draws} only, and {config.data.sources[0].path} {is_so}; "
            f"type --sampler {typed}"
        )


def endless_notes(config: RunConfig, registry: Registry) -> list[str]:
    """Return a sentence about an endless data set."""
    return [
        f"{source.path} has no end: each prompt is made when it is needed, -e does not count, and --max-steps ends the run"
        for source in config.data.sources
        if is_endless(source, registry, config.data.max_rows)
    ]
