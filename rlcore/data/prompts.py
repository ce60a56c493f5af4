"""Load the training prompts or an evaluation task, add a system prompt, and bound the length of prompts.

The plugin of the data source reads the rows. Its errors become one sentence that names the plugin.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from rlcore.config.data_source import is_endless, is_file, source_of, source_spec
from rlcore.config.run_config import DataSection, DataSource
from rlcore.contracts.errors import DataError, RlcoreError
from rlcore.contracts.row_interfaces import RowSource
from rlcore.contracts.specs import PluginKind, RewardSpec
from rlcore.contracts.types import Message, Prompt
from rlcore.data.dataset import Collected, DataSet, collect, resized
from rlcore.data.endless import prompts_of
from rlcore.data.left_out import LeftOut
from rlcore.data.row_formats import RowConversion, converted
from rlcore.data.rows import BadRow, Routes, kind_of
from rlcore.registry.plugin_registry import Registry

if TYPE_CHECKING:
    from rlcore.config import RunConfig

__all__ = [
    "EndlessDataError",
    "check_end",
    "check_prompt_lengths",
    "load_eval",
    "load_prompts",
    "read_rows",
    "short_prompts",
    "with_system_prompt",
]


_MOST_ROWS = 2_000_000
"""Rows that are read without ``data.max_rows``. A larger file may have as many rows as bytes; anything else may be endless."""


def _stem_of(source: DataSource, registry: Registry) -> str:
    """Return the beginning of the rows' default ids: the file's stem, or the whole path if its prefix chose the data source."""
    prefix = source_spec(source, registry).prefix
    return source.path if prefix and source.path.startswith(prefix) else Path(source.path).stem


def _silent(line: str) -> None:
    """Ignore the detected format. Callers that want to report it pass their own function."""


def read_rows(
    source: DataSource | str,
    registry: Registry,
    data: DataSection | None = None,
    *,
    beside: Sequence[str] = (),
    say: Callable[[str], None] = _silent,
) -> Iterator[tuple[int, object]]:
    """Yield (number from 1, row of rlcore or a BadRow with the reason) for each row.

    The data source reads the rows, and ``data.format`` and ``data.columns`` convert them. Raises DataError if the data set does not exist
    or cannot be read.

    :param beside: columns that a row may have and that the row format does not see, such as a completion to score.
    :param say: receives the detected format once."""
    source = DataSource(path=source) if isinstance(source, str) else source
    conversion = RowConversion(path=source.path, registry=registry, data=data or DataSection(), beside=beside, say=say)
    return converted(_raw_rows(source, registry), conversion)


def _raw_rows(source: DataSource, registry: Registry) -> Iterator[tuple[int, object]]:
    return _guarded(*_opened(source, registry))


def _opened(source: DataSource, registry: Registry) -> tuple[RowSource, str, str]:
    """Return the reader of a data set, its path, and the reader's name for errors."""
    if is_file(source, registry) and not Path(source.path).exists():
        raise DataError(f"{source.path}: no such data file; check the path that was typed")
    name = source_of(source, registry)
    model = registry.options_model(PluginKind.DATA, name)
    # The options of a plan went through JSON, which has no tuples. A strict model accepts them only as JSON.
    options = model.model_validate_json(json.dumps(dict(source.options))) if model is not None else None
    made: RowSource = registry.make(PluginKind.DATA, name, options=options)
    return made, source.path, f"the data source {name} of {registry.owner(PluginKind.DATA, name)}"


def _guarded(source: RowSource, path: str, label: str) -> Iterator[tuple[int, object]]:
    try:
        for place, item in enumerate(source.rows(path), start=1):
            if not (isinstance(item, tuple) and len(item) == 2 and isinstance(item[0], int)):
                said = f"{label} yielded {kind_of(item)} as item {place}, not a pair of a number and a row; fix the plugin"
                raise DataError(f"{path}: {said}")
            if not isinstance(item[1], Mapping | BadRow):
                raise DataError(f"{path}:{item[0]}: {label} yielded {kind_of(item[1])} as this row, not a mapping; fix the plugin")
            yield item
    except RlcoreError:
        raise
    except (Exception, SystemExit) as error:  # raised by a plugin: the data set cannot be read
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{path}: {label} failed ({said}); fix the data, its options or the plugin") from error


def load_prompts(
    config: RunConfig, reward_specs: Sequence[RewardSpec], registry: Registry, say: Callable[[str], None] = _silent
) -> DataSet:
    """Load the training prompts of a run: one or more data sets in order, each repeated by its ratio.

    Every row is checked before anything is returned; of an endless data set, the first rows. ``DataError`` has one sentence with
    ``file:line`` of the first bad row.
    """
    sources = config.data.sources
    if not sources:
        raise DataError("no training data is named; name at least one file with -d/--dataset")
    routes = Routes(tuple(reward_specs))
    if is_endless(sources[0], registry, config.data.max_rows):  # the plan allows no other beside it
        conversion = RowConversion(path=sources[0].path, registry=registry, data=config.data, say=say)
        stem = _stem_of(sources[0], registry)
        made = prompts_of(*_opened(sources[0], registry), stem=stem, conversion=conversion, routes=routes)
        return replace(DataSet.made_of(made.first()), endless=made)
    prompts: list[Prompt] = []
    left_out: list[LeftOut] = []
    for source, stem in zip(sources, _stems(sources, registry), strict=True):
        found = _collected(source, stem, routes, registry, config.data, say)
        prompts += resized(found.prompts, source.repeat)
        left_out += found.left_out
    return DataSet.made_of(prompts, left_out)


def load_eval(
    path: str | Path,
    reward_specs: Sequence[RewardSpec],
    registry: Registry,
    data: DataSection | None = None,
    say: Callable[[str], None] = _silent,
) -> DataSet:
    """Load one evaluation task, with the same formats and rules as for training.

    :param data: the conversion of rows; the defaults if None."""
    source = DataSource(path=str(path))
    routes = Routes(tuple(reward_specs))
    found = _collected(source, _stem_of(source, registry), routes, registry, data or DataSection(), say)
    return DataSet.made_of(found.prompts, found.left_out)


def _collected(
    source: DataSource, stem: str, routes: Routes, registry: Registry, data: DataSection, say: Callable[[str], None]
) -> Collected:
    """Return the prompts of one data set, from at most ``data.max_rows`` rows. Raises DataError for a bad row, unless these are dropped."""
    rows = read_rows(source, registry, data, say=say)
    bounded = islice(rows, data.max_rows) if data.max_rows is not None else _ending(rows, source, registry)
    return collect(bounded, name=source.path, stem=stem, routes=routes, drop=data.bad_rows == "drop")


def _ending(rows: Iterator[tuple[int, object]], source: DataSource, registry: Registry) -> Iterator[tuple[int, object]]:
    """Yield the rows. Raises DataError if there are more than a data set has."""
    most = _most_rows(source, registry)
    yield from islice(rows, most)
    if next(rows, None) is not None:
        raise _endless(source.path, most)


def _most_rows(source: DataSource, registry: Registry) -> int:
    bytes_of_file = Path(source.path).stat().st_size if is_file(source, registry) and Path(source.path).is_file() else 0
    return max(_MOST_ROWS, bytes_of_file)


class EndlessDataError(DataError):
    """A data set has more rows than any data set has."""


def _endless(path: str, most: int) -> EndlessDataError:
    return EndlessDataError(
        f"{path}: it has more than {most} rows, perhaps without end; say how many to read, for example --max-rows 100000"
    )


def check_end(source: DataSource, registry: Registry, max_rows: int | None, seconds: float) -> bool:
    """Return whether the rows of a data set end, or reach ``max_rows``, without checking them. False if that takes longer than ``seconds``.

    True for a data set that its data source declares endless: its first rows are checked instead.

    Raises EndlessDataError if there are more rows than a data set has."""
    if is_endless(source, registry, max_rows):
        return True
    most, begun = _most_rows(source, registry), time.monotonic()
    for count, _ in enumerate(_raw_rows(source, registry), start=1):
        if count == max_rows:
            break
        if max_rows is None and count > most:
            raise _endless(source.path, most)
        if count % 1000 == 0 and time.monotonic() - begun > seconds:
            return False
    return True


def with_system_prompt(messages: Sequence[Message], system_prompt: str | None) -> tuple[Message, ...]:
    """Return the messages with a system prompt in front, unless there is none ("" or None) or the row has its own."""
    if not system_prompt or any(message.role == "system" for message in messages):
        return tuple(messages)
    return (Message(role="system", content=system_prompt), *messages)


def check_prompt_lengths(prompts: Sequence[Prompt], token_counts: Sequence[int], max_prompt_tokens: int) -> None:
    """Raise ``DataError`` if a rendered prompt has more than ``max_prompt_tokens`` tokens. Nothing is cut or dropped silently."""
    long = [(prompt, count) for prompt, count in zip(prompts, token_counts, strict=True) if count > max_prompt_tokens]
    if not long:
        return
    (prompt, count), longest = long[0], max(count for _, count in long)
    more = f" (and so are {len(long) - 1} more)" if len(long) > 1 else ""
    raise DataError(
        f"{prompt.source}: the prompt is {count} tokens long, {max_prompt_tokens} are allowed{more}; "
        f"remove long rows, raise -mpt/--max-prompt-tokens to {longest}, or type --overlong drop"
    )


def short_prompts(prompts: Sequence[Prompt], token_counts: Sequence[int], max_prompt_tokens: int, name: str) -> tuple[Prompt, ...]:
    """Return the prompts of the data set ``name`` that have at most ``max_prompt_tokens``. Raises ``DataError`` if none remains."""
    if not (kept := tuple(prompt for prompt, count in zip(prompts, token_counts, strict=True) if count <= max_prompt_tokens)):
        raise DataError(
            f"{prompts[0].source}: this prompt and all others of {name} have more than {max_prompt_tokens} tokens, so --overlong drop "
            f"leaves none; raise -mpt/--max-prompt-tokens to {min(token_counts)} or more"
        )
    return kept


def _stems(sources: Sequence[DataSource], registry: Registry) -> list[str]:
    """Return the beginnings of default ids: the file's stem, or the path if two files have the same stem."""
    stems = [_stem_of(source, registry) for source in sources]
    return [source.path if stems.count(stem) > 1 else stem for source, stem in zip(sources, stems, strict=True)]
