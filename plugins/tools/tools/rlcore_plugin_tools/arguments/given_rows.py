"""Rows that Python code passes instead of a file: written once as JSON lines, in a file that is named after their content.

Every process of a run reads that file, and so do a resumed run, an evaluation and a report of the run.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any

from rlcore.api import ConfigError, DataError
from rlcore.api.commands import Registry, write_bytes
from rlcore.api.data import BadRow, DataSection, DataSource, RowConversion, json_value, only_place

__all__ = ["are_rows", "columns_of", "keep_rows", "rows_of"]


def are_rows(given: Any) -> bool:
    """Return whether a data set is given by its rows: not by a path, by several paths, or by tables ``{"path": …, "repeat": …}``."""
    if given is None or isinstance(given, str | PathLike):
        return False
    items = given if isinstance(given, list | tuple) else [None]
    return not items or not all(isinstance(item, str | PathLike | DataSource) or _is_source(item) for item in items)


def _is_source(item: Any) -> bool:
    return isinstance(item, Mapping) and "path" in item and item.keys() <= {*DataSource.model_fields, "ratio"}


def rows_of(given: Any, name: str, most: int | None = None) -> list[Mapping[str, Any]]:
    """Return the rows of a list, an iterable with a length, a pandas or polars table, or a Hugging Face data set.

    :param name: of the argument, for messages.
    :param most: the setting ``max_rows``. Rows without a length (a streamed data set, a generator) need it.
    :raises DataError: the object has no rows, or one of them is not a mapping.
    """
    kind = f"{name} is of type {type(given).__name__}"
    if isinstance(given, Mapping):
        keys = ", ".join(repr(str(key)) for key in islice(given, 4))
        raise DataError(f"{kind} with the keys {keys}; pass a list of dicts, one for each row, or one of its values")
    if not hasattr(given, "__iter__") and not hasattr(given, "__getitem__"):
        raise DataError(f"{kind}; pass a list of dicts, a DataFrame, a Hugging Face data set, or a path")
    if most is None and not hasattr(given, "__len__"):
        raise DataError(f"{kind} and has no length; pass --max-rows N, or list(…) of it")
    rows = list(islice(_each(given), most))
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            told = f"{name}[{number}] is of type {type(row).__name__}"
            raise DataError(f"{told}; a row must be a dict, such as {{'prompt': '1 + 2?', 'answer': '3'}}")
    if not rows:
        raise DataError(f"{name} is empty; it needs at least one row")
    return rows


def _each(given: Any) -> Iterator[Any]:
    if hasattr(given, "to_dicts"):  # polars
        return iter(given.to_dicts())
    return iter(given.to_dict("records") if hasattr(given, "iterrows") else given)


def keep_rows(rows: Sequence[Mapping[str, Any]], folder: Path, name: str) -> Path:
    """Write the rows into ``folder``, unless they are there, and return their file. Equal rows have one file.

    :raises DataError: a value that JSON cannot hold, by row and column.
    :raises ConfigError: the folder cannot be made.
    """
    lines = [_line(row, f"{name}[{number}]") for number, row in enumerate(rows)]
    content = "".join(lines).encode("utf-8", errors="replace")
    path = folder / f"{hashlib.sha256(content).hexdigest()[:16]}.jsonl"
    if not path.exists():
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ConfigError(f"{folder}: the folder cannot be created ({error.strerror}); choose another with --run-dir") from error
        write_bytes(path, content)
    return path.resolve()


def _line(row: Mapping[str, Any], place: str) -> str:
    try:
        return json.dumps(_filled(dict(row)), ensure_ascii=False, allow_nan=False, default=json_value) + "\n"
    except (TypeError, ValueError, RecursionError) as error:
        held = next((key for key, value in row.items() if not _fits(value)), "")
        column = f"[{held!r}]" if held else ""
        raise DataError(f"{place}{column}: {error}; columns may hold text, numbers, true, false, lists and dicts") from error


def _fits(value: Any) -> bool:
    try:
        json.dumps(_filled(value), allow_nan=False, default=json_value)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _filled(value: Any) -> Any:
    """Return the value with None for each missing value of a table: NaN, NaT and NA."""
    if isinstance(value, Mapping):
        return {key: _filled(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_filled(item) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value
    return None if type(value).__name__ in ("NAType", "NaTType") else value


def columns_of(first: Mapping[str, Any], registry: Registry, data: DataSection, *, needs_gold: bool) -> dict[str, str]:
    """Return ``data.columns`` for rows like ``first``: the given ones, and guesses for those that have one possible reading.

    Nothing is guessed for rows that a row format reads.

    :param needs_gold: whether a reward reads ``gt_answer``.
    """
    row: Mapping[Any, Any] = {}
    with suppress(BadRow):  # no format knows the row
        row = RowConversion(path="", registry=registry, data=data).row(first)
    absent = [target for target in ("messages", "gt_answer")[: 1 + needs_gold] if target not in row and target not in data.columns]
    guessed = {target: place for target in absent if (place := only_place(first, target))}
    return {**data.columns, **guessed}
