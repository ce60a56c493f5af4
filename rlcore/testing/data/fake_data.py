"""A data source and a row format whose rows are made of letters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rlcore.contracts.errors import DataError
from rlcore.contracts.row_interfaces import RowFormat, RowGenerator, RowSource
from rlcore.data.rows import BadRow

__all__ = ["FakeFormat", "FakeGenerator", "FakeRows"]


class FakeRows(RowSource):
    """Reads ``fake:abc``: one row a letter, whose task is to say it."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource."""
        letters = path.removeprefix("fake:")
        if not letters:
            raise DataError(f"{path}: no letter stands behind fake:")
        for number, letter in enumerate(letters, start=1):
            yield number, {"messages": {"role": "user", "content": letter}, "gt_answer": letter}


class FakeGenerator(RowGenerator):
    """Makes rows of ``fake-endless:abcd`` without end. The task is to say a letter: of the first half at level 0, of the second at 1."""

    def row(self, path: str, number: int, level: int) -> object:
        """See RowGenerator."""
        half = len(self._letters(path)) // 2
        letter = self._letters(path)[level * half + number % half]
        return {"messages": {"role": "user", "content": letter}, "gt_answer": letter}

    def levels(self, path: str) -> int:
        """See RowGenerator."""
        self._letters(path)
        return 2

    @staticmethod
    def _letters(path: str) -> str:
        letters = path.removeprefix("fake-endless:")
        if len(letters) < 2:
            raise DataError(f"{path}: at least two letters must stand behind fake-endless:")
        return letters


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
