"""Reads a JSONL file line by line, strictly: UTF-8, one JSON value a line, no NaN, no key twice. Knows nothing of what a row means."""

from __future__ import annotations

import codecs
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rlcore.data.rows import BadRow
from rlcore.errors import DataError

__all__ = ["read_jsonl"]


def read_jsonl(path: Path, name: str) -> Iterator[tuple[int, object | BadRow]]:
    """(line number from 1, decoded value or the reason why there is none) of every line that is not blank.

    A byte-order mark is skipped. ``DataError`` where the file cannot be read at all; ``name`` is how the user typed it.
    """
    if not path.is_file():
        raise DataError(f"{name}: is no regular file; write the rows to a file and name that")
    offset = 0
    try:
        with path.open("rb") as file:
            for number, raw in enumerate(file, start=1):
                if number == 1 and raw.startswith(codecs.BOM_UTF8):
                    raw, offset = raw[3:], 3
                if raw.strip():
                    yield number, _decoded(raw, offset)
                offset += len(raw)
    except OSError as error:
        raise DataError(f"{name}: the data file cannot be read ({error.strerror or error}); check its name and permissions") from error


def _decoded(raw: bytes, offset: int) -> object | BadRow:
    try:
        text = raw.decode("utf-8")
    except UnicodeDecodeError as error:
        return BadRow(f"byte {offset + error.start} of the file ({raw[error.start]:#04x}) is not UTF-8; save the file as UTF-8")
    try:
        value = _DECODER.decode(text.strip(" \t\r\n"))
        if "\\u" in text:  # an escaped lone surrogate is valid JSON and not valid text
            json.dumps(value, ensure_ascii=False).encode("utf-8")
    except BadRow as bad:
        return bad
    except UnicodeEncodeError:
        return BadRow("the line escapes half a surrogate pair (like \\ud800), which is no character; remove it")
    except json.JSONDecodeError as error:
        return BadRow(f"not JSON at column {error.colno} ({error.msg[:1].lower()}{error.msg[1:]}); each line must be one whole object")
    except (RecursionError, ValueError) as error:
        return BadRow(f"not usable as JSON ({'nested too deeply' if isinstance(error, RecursionError) else 'a number is too long'})")
    return value  # type: ignore[no-any-return]


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


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_constant, parse_float=_finite)
