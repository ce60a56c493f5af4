"""Reading with bounds: a file of a third party may hold an endless line, or unpack to a thousand times its size."""

from __future__ import annotations

import gzip
import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from rlcore.contracts.public_members import PublicMembers

__all__ = ["LONGEST_ROW", "InputTooLargeError", "UnpackedTooLargeError", "bounded_lines", "json_document", "read_document", "unpacked"]

LONGEST_ROW = 256 << 20
"""The limit in bytes of a line, a row, or a JSON or TOML document. A row of code with all its tests is smaller."""


class InputTooLargeError(ValueError, metaclass=PublicMembers):
    """A file is larger than a reader accepts. The message says what is too large, but not where."""


class UnpackedTooLargeError(InputTooLargeError):
    """The content of a compressed file is too large."""


def bounded_lines(stream: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield (line number from 1, line) of each line. Raise InputTooLargeError, which begins with the number, for a line that is too
    long."""
    number = 0
    while line := stream.readline(LONGEST_ROW + 1):
        number += 1
        if len(line) > LONGEST_ROW:
            raise InputTooLargeError(f"{number}: the line has more than {_words(LONGEST_ROW)}")
        yield number, line


def unpacked(file: BinaryIO, most: int, lines: int) -> BinaryIO:
    """Return the content of a gzip file as a stream.

    Reading raises UnpackedTooLargeError if the content has more than ``most`` bytes, or more ``lines``.
    """
    return io.BufferedReader(_Unpacked(file, most, lines), 1 << 17)


class _Unpacked(io.RawIOBase):
    def __init__(self, file: BinaryIO, most: int, lines: int) -> None:
        self._stream = gzip.GzipFile(fileobj=file)
        self._most, self._most_lines = most, lines
        self._room, self._lines = most, lines

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        count = self._stream.readinto(buffer)
        self._room -= count
        self._lines -= bytes(buffer[:count]).count(b"\n")
        if self._lines < 0:
            raise UnpackedTooLargeError(f"it unpacks to more than {self._most_lines} lines")
        if self._room < 0:
            raise UnpackedTooLargeError(f"it unpacks to more than {_words(self._most)}")
        return count


def read_document(path: Path) -> bytes:
    """Return the content of a whole file. Raise OSError if it cannot be read, InputTooLargeError if it is too large."""
    with path.open("rb") as file:
        data = file.read(LONGEST_ROW + 1)
    if len(data) > LONGEST_ROW:
        raise InputTooLargeError(f"it has more than {_words(LONGEST_ROW)}")
    return data


def json_document(path: Path) -> Any:
    """Return the value of a JSON file, which must be a regular file: a pipe in its place would hang the reader.

    Raise OSError if it cannot be read, ValueError if it does not hold usable JSON.
    """
    if path.exists() and not path.is_file():
        raise ValueError("it is not a regular file")
    try:
        return json.loads(read_document(path).decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _words(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size} bytes"
