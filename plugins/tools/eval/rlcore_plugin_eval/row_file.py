"""The file of ``--out``: written aside, and renamed when it is whole."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from rlcore.api import UsageError

__all__ = ["RowFile"]


class RowFile:
    """One JSON object a line. UsageError if nothing can be written at ``path``, which is seen before anything is evaluated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise UsageError(f"--out {path}: is {'a folder' if path.is_dir() else 'no regular file'}; name a file to write")
        if not path.parent.is_dir():
            raise UsageError(f"--out {path}: there is no folder {path.parent}; make it first")
        if not os.access(path.parent, os.W_OK):
            raise UsageError(f"--out {path}: {path.parent} cannot be written; name another folder")

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """All rows, or nothing: an older file stays until they are there. OSError, which names the file."""
        place = Path(os.path.realpath(self.path))  # a link stays one
        aside = place.with_name(f".{place.name}.partial")
        try:
            with aside.open("w", encoding="utf-8", errors="replace") as file:
                for row in rows:
                    file.write(json.dumps(row, ensure_ascii=False, allow_nan=False) + "\n")
                file.flush()
                os.fsync(file.fileno())
            aside.replace(place)
        except BaseException:
            with suppress(OSError):
                aside.unlink(missing_ok=True)
            raise
