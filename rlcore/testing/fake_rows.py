"""A data source, a row format and a weight transfer for tests: rows out of the path's own letters, and weights that stay in the process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.contracts.row_format import RowFormat
from rlcore.data.rows import BadRow
from rlcore.weights.memory import MemoryTransfer

__all__ = ["FakeFormat", "FakeRows", "FakeTransfer"]


class FakeRows(RowSource):
    """Reads ``fake:abc``: one row a letter, whose task is to say it."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource."""
        letters = path.removeprefix("fake:")
        if not letters:
            raise DataError(f"{path}: no letter stands behind fake:")
        for number, letter in enumerate(letters, start=1):
            yield number, {"messages": {"role": "user", "content": letter}, "gt_answer": letter}


class FakeFormat(RowFormat):
    """Rows ``{"fake": "a"}``, whose task is to say the letter."""

    def recognises(self, row: Mapping[str, Any]) -> bool:
        """See RowFormat."""
        return "fake" in row

    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """See RowFormat."""
        letter = row.get("fake")
        if not isinstance(letter, str) or not letter:
            raise BadRow('the row has no letter in "fake"')
        return {"messages": {"role": "user", "content": letter}, "gt_answer": letter}


class FakeTransfer(MemoryTransfer):
    """Weights within one process, under another name than ``memory``."""
