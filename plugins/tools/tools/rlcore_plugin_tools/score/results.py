"""The result file: written row by row under another name, and renamed after the last row. An interrupted file can be resumed."""

from __future__ import annotations

import heapq
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Any, BinaryIO

from rlcore.api import DataError, UsageError
from rlcore_plugin_tools.score.items import TextVerdict

__all__ = ["ResultFile"]


class ResultFile:
    """A result file. Rows go to ``<name>.partial``; ``<name>.partial.json`` next to it identifies the judged file and the rewards.

    If the block completes, the rows are in order under the final name. After KeyboardInterrupt and a failed run, the judged rows stay as
    ``.partial``; a UsageError leaves no new file.

    :param path: the file of the results; an older one is replaced at the end.
    :param source: the file that is read, which must be another one.
    :param identity: plain values that identify the judged file and the rewards. A resumed scoring must have the same.
    :raises UsageError: nothing can be written there.
    """

    def __init__(self, path: Path, source: Path, identity: Mapping[str, Any] | None = None) -> None:
        self.path = Path(os.path.realpath(path))
        self.partial = self.path.with_name(f"{self.path.name}.partial")
        self._about = self.path.with_name(f"{self.path.name}.partial.json")
        self._identity = dict(identity or {})
        self._kept = 0
        if self.path.is_dir() or (self.path.exists() and not self.path.is_file()):
            raise UsageError(f"--out {path}: is {'a folder' if self.path.is_dir() else 'not a regular file'}; name a file to write")
        if not self.path.parent.is_dir():
            raise UsageError(f"--out {path}: there is no folder {path.parent}; make it first")
        if Path(os.path.realpath(source)) in (self.path, self.partial, self._about):
            raise UsageError(f"--out {path}: this would overwrite the file that is read; choose another name")

    def resumed(self) -> list[dict[str, Any]]:
        """Return the rows that were judged before the interruption; [] if none were. They stay in the file, and new ones follow them.

        An incomplete last row is dropped, and so is a last group, since rows of it may be missing.

        :raises UsageError: the rows come from another file or from other rewards.
        """
        if not self.partial.is_file():
            return []
        self._check_identity()
        rows: list[tuple[dict[str, Any], bytes]] = []
        with self.partial.open("rb") as file:
            for line in file:
                if (row := _row(line)) is None:
                    break
                rows.append((row, line))
        last = rows[-1][0]["line"] if rows and "completion" in rows[-1][0] else None
        while rows and rows[-1][0]["line"] == last:
            rows.pop()
        if any(before[0]["line"] > after[0]["line"] for before, after in pairwise(rows)):  # it was resumed before
            rows.sort(key=lambda pair: int(pair[0]["line"]))
            self._replace(line for _, line in rows)
        self._kept = sum(len(line) for _, line in rows)
        return [row for row, _ in rows]

    def _check_identity(self) -> None:
        try:
            before = dict(json.loads(self._about.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, RecursionError) as error:
            raise UsageError(f"--resume: {self._about} cannot be read, so it is unknown what was judged; leave out --resume") from error
        if differs := sorted(key for key in {*before, *self._identity} if before.get(key) != self._identity.get(key)):
            raise UsageError(
                f"--resume: {self.partial} was written with another {' and '.join(differs)}; type the same command again, "
                "or leave out --resume to judge all rows again"
            )

    def __enter__(self) -> ResultFile:
        if not self._kept:
            self._about.write_text(json.dumps(self._identity, ensure_ascii=False), encoding="utf-8")
            self._file: BinaryIO = self.partial.open("wb")
            return self
        self._file = self.partial.open("r+b")
        self._file.truncate(self._kept)
        self._file.seek(self._kept)
        return self

    def add(self, verdict: TextVerdict, more: Mapping[str, Any] | None = None) -> None:
        """Add one row; ``more``: further fields of it."""
        self._file.write(
            json.dumps({**verdict.as_row(), **(more or {})}, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace") + b"\n"
        )

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        if error is None:
            self._put_in_order()
            self.partial.replace(self.path)
            self._about.unlink(missing_ok=True)
        elif isinstance(error, UsageError) and not self._kept:
            self.partial.unlink()
            self._about.unlink(missing_ok=True)

    def _put_in_order(self) -> None:
        """Sort the rows of a resumed file, which are two sequences of rising lines."""
        if not self._kept:
            return
        self._replace(heapq.merge(self._rows(0, self._kept), self._rows(self._kept, None), key=_line_number))

    def _replace(self, lines: Iterable[bytes]) -> None:
        """Replace the content of the partial file, completely or not at all."""
        beside = self.partial.with_name(f"{self.partial.name}.sorted")
        with beside.open("wb") as file:
            file.writelines(lines)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(self.partial)

    def _rows(self, start: int, end: int | None) -> Iterator[bytes]:
        with self.partial.open("rb") as file:
            file.seek(start)
            while (end is None or file.tell() < end) and (line := file.readline()):
                yield line


def _row(line: bytes) -> dict[str, Any] | None:
    """Return a complete row, None for an incomplete one."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return row if line.endswith(b"\n") and isinstance(row, dict) and isinstance(row.get("line"), int) else None


def _line_number(row: bytes) -> int:
    found = _row(row)
    if found is None:
        raise DataError("a row of the result file was changed while it was written; judge the file again")
    return int(found["line"])
