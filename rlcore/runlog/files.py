"""Writing so that a crash leaves the old file or the new one, never half of one."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

__all__ = ["append_json_line", "sync_folder", "sync_folder_entry", "write_json", "write_json_lines", "write_text"]


def write_text(path: Path, text: str) -> None:
    """Write aside, flush to disk, rename."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.partial")
    with aside.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    aside.replace(path)
    sync_folder_entry(path.parent)


def write_json(path: Path, value: Any) -> None:
    """One JSON document, readable."""
    write_text(path, json.dumps(_plain(value), indent=2, ensure_ascii=False, allow_nan=False, sort_keys=True) + "\n")


def write_json_lines(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """A JSONL file, whole or not at all."""
    write_text(path, "".join(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n" for row in rows))


def append_json_line(path: Path, row: Mapping[str, Any]) -> None:
    """One more line of a log, written in a single call so that a reader never meets half a line."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(_plain(row), ensure_ascii=False, allow_nan=False) + "\n")


def sync_folder(folder: Path) -> None:
    """Flush every file below a folder, and the folders themselves, to disk."""
    for path in [*folder.rglob("*"), folder]:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def sync_folder_entry(folder: Path) -> None:
    """Flush a folder's list of names, so that a rename in it survives a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _plain(value: Any) -> Any:
    """JSON has no NaN and no infinity: null stands for "no figure"."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Path):
        return str(value)
    return value
