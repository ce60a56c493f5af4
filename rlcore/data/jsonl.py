"""Open data files and read strict JSON: UTF-8, no NaN, no duplicate keys; one row per line, or one list per file.

This module does not know the meaning of a row."""

from __future__ import annotations

import codecs
import gzip
import json
import math
import re
import zlib
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from rlcore.contracts.errors import DataError
from rlcore.contracts.row_interfaces import RowSource
from rlcore.data.json_texts import whole_number
from rlcore.data.rows import BadRow, readable
from rlcore.host.bounded_reading import InputTooLargeError, UnpackedTooLargeError, bounded_lines, unpacked

__all__ = ["JsonFile", "JsonLines", "opened", "read_jsonl"]

_GZIP = b"\x1f\x8b"
_ALWAYS_UNPACKED = 64 << 20
_MOST_TIMES = 50
"""The most that a gzip file may expand, as a multiple of its size. Text of people and of models expands a tenth of that."""
_ALWAYS_LINES = 200_000
_LEAST_OF_A_LINE = 4
"""Compressed bytes. Rows that differ need more than that."""
_LONGEST_LIST = 2 << 30
"""Bytes of a ``.json`` file, which is held in memory as a whole."""
_START = 1 << 16
"""Bytes at the start that show whether the file holds a list."""
_UNREADABLE = {
    b"PAR1": "is Parquet; let its name end in .parquet",
    b"PK\x03\x04": "is a zip archive; unpack it and name the file in it",
    b"\x28\xb5\x2f\xfd": "is packed with zstd; unpack it (zstd -d), or pack it with gzip",
    b"\xfd7zXZ": "is packed with xz; unpack it (xz -d), or pack it with gzip",
    b"BZh": "is packed with bzip2; unpack it (bzip2 -d), or pack it with gzip",
}


@contextmanager
def opened(path: Path, name: str) -> Iterator[BinaryIO]:
    """Open a text file as bytes. Gzip is unpacked, whatever the name of the file.

    Raises DataError, also during reading, for a file that cannot be read and for a gzip file that expands far beyond its size.

    :param name: the name as the user typed it."""
    if not path.is_file():
        raise DataError(f"{name}: is not a regular file; write the rows to a file and name that file")
    try:
        with path.open("rb") as file:
            start = file.read(8)
            file.seek(0)
            for magic, said in _UNREADABLE.items():
                if start.startswith(magic):
                    raise DataError(f"{name}: the file {said}")
            if start.startswith(_GZIP):
                size = path.stat().st_size
                lines = max(_ALWAYS_LINES, size // _LEAST_OF_A_LINE)
                with closing(unpacked(file, max(_ALWAYS_UNPACKED, _MOST_TIMES * size), lines)) as stream:
                    yield stream
            else:
                yield file
    except UnpackedTooLargeError as error:
        raise DataError(
            f"{name}: {error}, which is the limit for a gzip file of its size; if you trust it, unpack it with gunzip"
        ) from error
    except InputTooLargeError as error:
        raise DataError(f"{name}:{error}, which is the limit for a row; split that row, or leave it out") from error
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{name}: the gzip file is damaged or cut short ({error}); copy it again") from error
    except OSError as error:
        raise DataError(f"{name}: the data file cannot be read ({error.strerror or error}); check its name and permissions") from error


_CSV_HEADER = re.compile(rb'"?\w+"?([,;\t]"?\w+"?)+')


class JsonLines(RowSource):
    """The data source ``jsonl``."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource. The number of a row is its line number."""
        return read_jsonl(Path(path), path)


class JsonFile(RowSource):
    """The data source ``json``: a file that holds one list of rows. A file with one row per line is read as JSONL."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource. The number of a row is its position in the list. The whole file is read at once."""
        with opened(Path(path), path) as file:
            start = file.read(_START)
            is_list = start.removeprefix(codecs.BOM_UTF8).lstrip()[:1] in (b"[", b"")
            content = start + (file.read(_LONGEST_LIST - len(start) + 1) if is_list else b"")
        if len(content) > _LONGEST_LIST:
            raise DataError(
                f"{path}: the list has more than {_LONGEST_LIST >> 20} MiB, which is the limit; write one row per line in a .jsonl file"
            )
        if not content.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
            yield from JsonLines().rows(path)
            return
        try:
            rows = _strict_json(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start} of the file is not UTF-8; save the file as UTF-8") from error
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno}: not JSON at column {error.colno} ({error.msg[:1].lower()}{error.msg[1:]})") from error
        except BadRow as bad:
            raise DataError(f"{path}: {bad}") from bad
        yield from enumerate(map(readable, rows), start=1)  # type: ignore[call-overload]


def read_jsonl(path: Path, name: str) -> Iterator[tuple[int, object | BadRow]]:
    """Yield (line number from 1, decoded value or the reason why there is none) for every line that is not blank.

    Skips a byte-order mark and unpacks gzip. Raises ``DataError`` if the file cannot be read at all.

    :param name: the name as the user typed it.
    """
    offset = 0
    with opened(path, name) as file:
        for number, raw in bounded_lines(file):
            if number == 1 and raw.startswith(codecs.BOM_UTF8):
                raw, offset = raw[3:], 3
            if raw.strip():
                row = _decoded(raw, offset)
                yield number, BadRow(f"{row}{_other_format(raw)}") if number == 1 and isinstance(row, BadRow) else row
            offset += len(raw)


def _other_format(first: bytes) -> str:
    """Return advice if the first line, which is not a row, shows that the file has another format; else ""."""
    if first.lstrip().startswith(b"["):
        return "; a file that holds one JSON list is read if its name ends in .json"
    return "; the file looks like CSV, which is read if its name ends in .csv" if _CSV_HEADER.fullmatch(first.strip()) else ""


def _decoded(raw: bytes, offset: int) -> object | BadRow:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(f"byte {offset + error.start} of the file ({raw[error.start]:#04x}) is not UTF-8; save the file as UTF-8")
    try:
        return readable(_strict_json(text))
    except BadRow as bad:
        return bad
    except json.JSONDecodeError as error:
        return BadRow(f"not JSON at column {error.colno} ({error.msg[:1].lower()}{error.msg[1:]}); each line must be one whole object")


def _strict_json(text: str) -> object:
    """Return the value of a JSON text. Raises BadRow, with the reason, for text that the standard or this program does not accept.

    Raises JSONDecodeError for text that is not JSON."""
    try:
        value: object = _decoded_json(text.strip(" \t\r\n"))
        if "\\u" in text:  # an escaped lone surrogate is valid JSON but not valid text
            _texts_of(value, text).encode("utf-8")
    except UnicodeEncodeError as error:
        raise BadRow("the line escapes half a surrogate pair (like \\ud800), which is not a character; remove it") from error
    except json.JSONDecodeError:
        raise
    except RecursionError as error:
        raise BadRow("not usable as JSON (nested too deeply)") from error
    return value


def _decoded_json(text: str) -> object:
    try:
        return _DECODER.decode(text)
    except json.JSONDecodeError:
        raise
    except ValueError:  # a number of more digits than Python converts
        return _DECODER_OF_LONG_NUMBERS.decode(text)


def _texts_of(value: object, text: str) -> str:
    """Return the value as JSON, for the texts in it."""
    try:
        return json.dumps(value, ensure_ascii=False)
    except ValueError:  # it holds a number of more digits than Python writes
        return json.dumps(json.loads(text, parse_int=str), ensure_ascii=False)


def _whole(text: str) -> int:
    try:
        return whole_number(text)
    except ValueError as error:
        raise BadRow(f"{error}; leave that row out") from error


def _constant(name: str) -> Any:
    raise BadRow(f"{name} is not JSON; write null, or leave the column out")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise BadRow(f"the number {text[:24]} is too large for a float")
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        twice = next(key for key in keys if keys.count(key) > 1)
        raise BadRow(f'the key "{twice}" occurs twice in one object; keep one')
    return row


_HOOKS: dict[str, Any] = {"object_pairs_hook": _unique, "parse_constant": _constant, "parse_float": _finite}
_DECODER = json.JSONDecoder(**_HOOKS)
_DECODER_OF_LONG_NUMBERS = json.JSONDecoder(**_HOOKS, parse_int=_whole)
"""Slower, because it calls a Python function for each number."""
