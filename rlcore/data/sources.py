"""Rows of a data set, by the plugin that reads it. What such a plugin raises becomes one sentence that names it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from rlcore.config.data_source import is_file, source_of, source_spec
from rlcore.config.model import DataSource
from rlcore.contracts.errors import DataError, RlcoreError
from rlcore.contracts.interfaces import RowSource
from rlcore.contracts.specs import PluginKind
from rlcore.data.rows import BadRow, kind_of
from rlcore.host.registry import Registry

__all__ = ["read_rows", "stem_of"]


def stem_of(source: DataSource, registry: Registry) -> str:
    """What the default ids of its rows begin with: the file's stem, or the whole path if its prefix chose the data source."""
    prefix = source_spec(source, registry).prefix
    return source.path if prefix and source.path.startswith(prefix) else Path(source.path).stem


def read_rows(source: DataSource, registry: Registry) -> Iterator[tuple[int, object]]:
    """(number from 1, row) of each row. DataError if the data set is not there or cannot be read."""
    if is_file(source, registry) and not Path(source.path).exists():
        raise DataError(f"{source.path}: no such data file; check the path given with -d/--dataset or -ed/--eval-dataset")
    name = source_of(source, registry)
    model = registry.options_model(PluginKind.DATA, name)
    # The options of a plan went through JSON, which has no tuples; a strict model takes them back as JSON only.
    options = model.model_validate_json(json.dumps(dict(source.options))) if model is not None else None
    made: RowSource = registry.make(PluginKind.DATA, name, options=options)
    return _guarded(made, source.path, f"the data source {name} of {registry.owner(PluginKind.DATA, name)}")


def _guarded(source: RowSource, path: str, label: str) -> Iterator[tuple[int, object]]:
    try:
        for place, item in enumerate(source.rows(path), start=1):
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int)):
                said = f"{label} yielded {kind_of(item)} as item {place}, not a pair of a number and a row; mend the plugin"
                raise DataError(f"{path}: {said}")
            if not isinstance(item[1], Mapping | BadRow):
                raise DataError(f"{path}:{item[0]}: {label} yielded {kind_of(item[1])} as this row, not a mapping; mend the plugin")
            yield item
    except RlcoreError:
        raise
    except (Exception, SystemExit) as error:  # of a plugin: whatever it raises, the data set cannot be read
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{path}: {label} failed ({said}); mend the data, its options or the plugin") from error
