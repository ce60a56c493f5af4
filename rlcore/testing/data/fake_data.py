"""A data source and a row format whose rows are made of letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlcore.contracts.errors import DataError
from rlcore.contracts.row_interfaces import RowFormat, RowSource
from rlcore.data.rows import BadRow

__all__ = ["FakeFormat", "FakeRows"]


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
