"""Reads a JSON file that holds one list of rows. One that holds a row a line is read as JSONL."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from pathlib import Path

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.data.jsonl import JsonLines, strict_json
from rlcore.data.opening import opened
from rlcore.data.rows import BadRow, readable

__all__ = ["JsonFile"]


class JsonFile(RowSource):
    """The data source ``json``."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource; the number of a row is its place in the list. The whole file is read at once."""
        with opened(Path(path), path) as file:
            content = file.read()
        if not content.removeprefix(codecs.BOM_UTF8).lstrip().startswith(b"["):
            yield from JsonLines().rows(path)
            return
        try:
            rows = strict_json(content.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise DataError(f"{path}: byte {error.start} of the file is not UTF-8; save the file as UTF-8") from error
        except json.JSONDecodeError as error:
            raise DataError(f"{path}:{error.lineno}: not JSON at column {error.colno} ({error.msg[:1].lower()}{error.msg[1:]})") from error
        except BadRow as bad:
            raise DataError(f"{path}: {bad}") from bad
        yield from enumerate(map(readable, rows), start=1)  # type: ignore[call-overload]
