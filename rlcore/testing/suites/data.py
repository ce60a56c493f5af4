"""Conformance suite for data sources."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.data.dataset import DataSet
from rlcore.data.rows import BadRow

__all__ = ["DataSourceSuite"]


class DataSourceSuite:
    """Subclass it; ``make`` and ``path`` say what is tested. ``missing`` and ``damaged`` are paths of data sets that cannot be read, for a
    source that reads something which may be absent or damaged.
    """

    columns: tuple[str, ...] = ("gt_answer",)
    """Columns that every row of ``path`` has beside its messages."""

    def make(self) -> RowSource:
        """A fresh source, with options if it has any."""
        raise NotImplementedError

    def path(self, folder: Path) -> str:
        """A data set of at least two rows, as a user would type it; files go into ``folder``."""
        raise NotImplementedError

    def missing(self, folder: Path) -> str:
        """A data set that is not there; "" for a source that makes its rows."""
        return ""

    def damaged(self, folder: Path) -> str:
        """A data set that is there and cannot be read; "" for a source that makes its rows."""
        return ""

    def read(self, path: str) -> list[tuple[int, object]]:
        """All rows, by a source of their own."""
        return list(self.make().rows(path))

    def test_every_row_is_taken(self, tmp_path: Path) -> None:
        """Rows are what rlcore trains on: a mapping with ``messages`` whose last is the user's, text columns, unique ids."""
        rows = self.read(self.path(tmp_path))
        assert len(rows) >= 2, f"{len(rows)} rows; the suite needs at least two"
        bad = [row for _, row in rows if not isinstance(row, Mapping)]
        assert not bad, f"a row is no mapping: {bad[0]!r}"
        mappings: list[Mapping[str, Any]] = [row for _, row in rows if isinstance(row, Mapping)]
        data = DataSet.of(mappings)
        for prompt in data.prompts:
            assert set(self.columns) <= set(prompt.columns), f"a row has the columns {sorted(prompt.columns)}, not {self.columns}"

    def test_numbers_rise_from_one(self, tmp_path: Path) -> None:
        """A number is how a row is named in an error and in its default id, so no two rows share one."""
        numbers = [number for number, _ in self.read(self.path(tmp_path))]
        assert all(isinstance(number, int) for number in numbers), f"a number is no int: {numbers}"
        assert numbers[0] >= 1, f"the first row is number {numbers[0]}"
        assert numbers == sorted(set(numbers)), f"numbers do not rise: {numbers}"

    def test_reading_again_gives_the_same(self, tmp_path: Path) -> None:
        """Every process of a run reads the data set itself, and they must agree: same rows, same order, whatever was read before."""
        path, source = self.path(tmp_path), self.make()
        first, again = list(source.rows(path)), list(source.rows(path))
        assert repr(first) == repr(again), "the same source gives other rows when it is read again"
        assert repr(first) == repr(self.read(path)), "another source of the same options gives other rows"

    def test_it_can_be_left_halfway(self, tmp_path: Path) -> None:
        """An iterator that is dropped leaves nothing behind that keeps the next one from working."""
        path, source = self.path(tmp_path), self.make()
        rows = iter(source.rows(path))
        next(rows)
        del rows
        assert len(list(source.rows(path))) >= 2

    def test_what_cannot_be_read_is_said(self, tmp_path: Path) -> None:
        """DataError that begins with the path as it was typed, or a BadRow with a reason; never an empty data set."""
        for path in filter(None, (self.missing(tmp_path), self.damaged(tmp_path))):
            said = ""
            try:
                said = next((str(row) for _, row in self.read(path) if isinstance(row, BadRow)), "")
            except DataError as error:
                said = str(error)
                raised = True
            else:
                raised = False
            assert said, f"{path} cannot be read, and nothing says so"
            assert not raised or said.startswith(path), f"the error does not begin with the path {path}: {said}"
