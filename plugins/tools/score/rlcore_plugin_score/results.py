"""The result file: written row by row under another name, and renamed when the last row is in."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import TracebackType

from rlcore.api import UsageError
from rlcore_plugin_score.items import TextVerdict

__all__ = ["ResultFile"]


class ResultFile:
    """Rows go to ``<name>.partial``. A whole block ends with that file under its own name; KeyboardInterrupt and a failed run leave what
    was judged as ``.partial``; a UsageError leaves nothing.

    :param path: the file of the results; an older one is replaced at the end.
    :param source: the file that is read, which must be another one.
    :raises UsageError: nothing can be written there.
    """

    def __init__(self, path: Path, source: Path) -> None:
        self.path = Path(os.path.realpath(path))
        self.partial = self.path.with_name(f"{self.path.name}.partial")
        if self.path.is_dir() or (self.path.exists() and not self.path.is_file()):
            raise UsageError(f"--out {path}: is {'a folder' if self.path.is_dir() else 'no regular file'}; name a file to write")
        if not self.path.parent.is_dir():
            raise UsageError(f"--out {path}: there is no folder {path.parent}; make it first")
        if Path(os.path.realpath(source)) in (self.path, self.partial):
            raise UsageError(f"--out {path}: this would overwrite the file that is read; choose another name")

    def __enter__(self) -> ResultFile:
        self._file = self.partial.open("w", encoding="utf-8")
        return self

    def add(self, verdict: TextVerdict) -> None:
        """One more row."""
        self._file.write(json.dumps(verdict.as_row(), ensure_ascii=False, allow_nan=False).encode("utf-8", "replace").decode() + "\n")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if error is None:
            self.partial.replace(self.path)
        elif isinstance(error, UsageError):
            self.partial.unlink()
