"""The file of ``--out``: written under another name, and renamed when it is complete."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from rlcore.api import UsageError
from rlcore.api.commands import write_json_lines

__all__ = ["RowFile"]


class RowFile:
    """One JSON object a line. Raises UsageError if ``path`` cannot be written; this is checked before anything is evaluated."""

    def __init__(self, path: Path) -> None:
        self.path = path
        if path.exists() and not path.is_file():
            raise UsageError(f"--out {path}: is {'a folder' if path.is_dir() else 'not a regular file'}; name a file to write")
        if not path.parent.is_dir():
            raise UsageError(f"--out {path}: there is no folder {path.parent}; make it first")
        if not os.access(path.parent, os.W_OK):
            raise UsageError(f"--out {path}: {path.parent} cannot be written; name another folder")

    def write(self, rows: Iterable[Mapping[str, Any]]) -> None:
        """Write all rows, or nothing: an older file stays until then. RunError, which names the file, if it cannot be written."""
        write_json_lines(Path(os.path.realpath(self.path)), rows)  # a link stays a link
