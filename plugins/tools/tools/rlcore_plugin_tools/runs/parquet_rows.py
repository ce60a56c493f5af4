"""Writes rollouts to a Parquet file, a few thousand rows at a time. Conversations stay lists of messages; parts of a reward become a
map."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from rlcore.api import UsageError
from rlcore.api.commands import install_line
from rlcore_plugin_tools.runs.rollout_rows import plain_text

__all__ = ["write_parquet"]

_BATCH = 4096
_COLUMNS = {
    "step": "int", "task": "text", "prompt_id": "text", "prompt_index": "int", "episode": "int", "prompt": "messages", "gold": "text",
    "index": "int", "kind": "text", "temperature": "number", "text": "text", "finish": "text", "length": "int", "version": "int",
    "reward": "number", "accuracy": "number", "format_ok": "truth", "parsed": "text", "parts": "numbers", "outcome": "text",
    "reason": "text", "advantage": "number", "masked": "truth", "turns": "text", "turn_rewards": "text",
}  # fmt: skip
"""Column -> type. All other fields of a row go into ``other``, as JSON."""


def write_parquet(rows: Iterable[Mapping[str, Any]], path: Path) -> int:
    """Write the rows and return their number; an older file is replaced once all are written.

    UsageError if pyarrow is not installed, or if no file can be written there.
    """
    try:
        import pyarrow as arrow
        import pyarrow.parquet as parquet
    except ImportError as error:
        reason = "" if isinstance(error, ModuleNotFoundError) else f" (it is installed, but its import fails: {str(error).splitlines()[0]})"
        raise UsageError(f"--parquet {path}: writing it needs the package pyarrow{reason}; type: {install_line('pyarrow')}") from error
    if not path.parent.is_dir():
        raise UsageError(f"--parquet {path}: there is no folder {path.parent}; name a file")
    if path.exists() and not path.is_file():  # a rename would replace a device, such as /dev/null, for the whole machine
        raise UsageError(f"--parquet {path}: this is {'a folder' if path.is_dir() else 'not a regular file'}; name a file")
    schema, count = _schema(arrow), 0
    partial = path.with_name(f".{path.name}.partial")
    try:
        with parquet.ParquetWriter(partial, schema, compression="zstd") as file:
            for batch in _batches(rows):
                file.write_table(arrow.Table.from_pylist([_cells(row) for row in batch], schema=schema))
                count += len(batch)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
    return count


def _batches(rows: Iterable[Mapping[str, Any]]) -> Iterator[list[Mapping[str, Any]]]:
    source = iter(rows)
    while batch := list(islice(source, _BATCH)):
        yield batch


def _schema(arrow: Any) -> Any:
    message = arrow.struct([("role", arrow.string()), ("content", arrow.string())])
    types = {
        "int": arrow.int64(),
        "text": arrow.string(),
        "number": arrow.float64(),
        "truth": arrow.bool_(),
        "messages": arrow.list_(message),
        "numbers": arrow.map_(arrow.string(), arrow.float64()),
    }
    return arrow.schema([*((name, types[kind]) for name, kind in _COLUMNS.items()), ("other", arrow.string())])


def _cells(row: Mapping[str, Any]) -> dict[str, Any]:
    other = {name: value for name, value in row.items() if name not in _COLUMNS}
    cells = {name: _AS[kind](row[name]) if row.get(name) is not None else None for name, kind in _COLUMNS.items()}
    return {**cells, "other": _text(other) if other else None}


def _text(value: object) -> str:
    """Return text in which half of a surrogate pair, which no text file can hold, is a question mark."""
    return plain_text(value).encode("utf-8", "replace").decode("utf-8")


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def _messages(value: object) -> list[dict[str, str | None]]:
    told = value if isinstance(value, list) else [value]
    return [_message(item) if isinstance(item, Mapping) else {"role": None, "content": _text(item)} for item in told]


def _message(item: Mapping[str, Any]) -> dict[str, str | None]:
    return {name: _text(item[name]) if item.get(name) is not None else None for name in ("role", "content")}


def _parts(value: object) -> list[tuple[str, float | None]]:
    return [(_text(name), _number(part)) for name, part in value.items()] if isinstance(value, Mapping) else []


_AS: Mapping[str, Callable[[Any], Any]] = {
    "int": lambda value: int(value) if isinstance(value, int | float) else None,
    "text": _text,
    "number": _number,
    "truth": lambda value: value if isinstance(value, bool) else None,
    "messages": _messages,
    "numbers": _parts,
}
