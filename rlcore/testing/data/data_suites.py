"""Conformance suites for data sources and row formats."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import DataError
from rlcore.contracts.row_interfaces import RowFormat, RowSource
from rlcore.data.dataset import DataSet
from rlcore.data.rows import BadRow

__all__ = ["DataSourceSuite", "RowFormatSuite"]


class DataSourceSuite:
    """The rules of a data source.

    A subclass defines how to make the source, and ``path`` of a data set. A source whose data set may be absent or damaged also gives
    ``missing`` and ``damaged``.
    """

    columns: tuple[str, ...] = ("gt_answer",)
    """Columns that every row of ``path`` has beside its messages."""

    def make(self) -> RowSource:
        """Return a fresh source, with options if it has any."""
        raise NotImplementedError

    def path(self, folder: Path) -> str:
        """Return the path of a data set of at least two rows, as a user types it; files go into ``folder``."""
        raise NotImplementedError

    def missing(self, folder: Path) -> str:
        """Return the path of a data set that does not exist; "" for a source that makes its rows."""
        return ""

    def damaged(self, folder: Path) -> str:
        """Return the path of a data set that exists and cannot be read; "" for a source that makes its rows."""
        return ""

    def read(self, path: str) -> list[tuple[int, object]]:
        """Return all rows, read by a new source."""
        return list(self.make().rows(path))

    def test_every_row_is_taken(self, tmp_path: Path) -> None:
        """Each row is a mapping with ``messages`` that end with the user's, text columns, and a unique id if it has one."""
        rows = self.read(self.path(tmp_path))
        assert len(rows) >= 2, f"{len(rows)} rows; the suite needs at least two"
        bad = [row for _, row in rows if not isinstance(row, Mapping)]
        assert not bad, f"a row is not a mapping: {bad[0]!r}"
        mappings: list[Mapping[str, Any]] = [row for _, row in rows if isinstance(row, Mapping)]
        data = DataSet.of(mappings)
        for prompt in data.prompts:
            assert set(self.columns) <= set(prompt.columns), f"a row has the columns {sorted(prompt.columns)}, not {self.columns}"

    def test_numbers_rise_from_one(self, tmp_path: Path) -> None:
        """The numbers of rows rise from 1 or above, and no two rows share one: errors and default ids use them."""
        numbers = [number for number, _ in self.read(self.path(tmp_path))]
        assert all(isinstance(number, int) for number in numbers), f"a number is not an int: {numbers}"
        assert numbers[0] >= 1, f"the first row is number {numbers[0]}"
        assert numbers == sorted(set(numbers)), f"numbers do not rise: {numbers}"

    def test_reading_again_gives_the_same(self, tmp_path: Path) -> None:
        """The same source, and another one with the same options, gives the same rows in the same order. Each process of a run reads the
        data set itself."""
        path, source = self.path(tmp_path), self.make()
        first, again = list(source.rows(path)), list(source.rows(path))
        assert repr(first) == repr(again), "the same source gives other rows when it is read again"
        assert repr(first) == repr(self.read(path)), "another source of the same options gives other rows"

    def test_it_can_be_left_halfway(self, tmp_path: Path) -> None:
        """An iterator can be dropped before its end, and the source can be read again."""
        path, source = self.path(tmp_path), self.make()
        rows = iter(source.rows(path))
        next(rows)
        del rows
        assert len(list(source.rows(path))) >= 2

    def test_what_cannot_be_read_is_said(self, tmp_path: Path) -> None:
        """A data set that is missing or damaged is a DataError that begins with the path, or a BadRow with a reason."""
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


class RowFormatSuite:
    """The rules of a row format.

    A subclass defines how to make the format, and gives ``rows`` of it. ``foreign``: rows of other formats. ``broken``: rows that the
    format recognises, or is asked to read, and cannot convert.
    """

    columns: tuple[str, ...] = ("gt_answer",)
    """Columns that every converted row has beside its messages."""

    foreign: Sequence[Mapping[str, Any]] = ()
    broken: Sequence[Mapping[str, Any]] = ()

    def make(self) -> RowFormat:
        """Return a fresh format."""
        raise NotImplementedError

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """Return at least two rows in the format of the data set."""
        raise NotImplementedError

    def test_its_rows_are_recognised_and_others_are_not(self) -> None:
        """The format recognises its own rows, and no row of rlcore, empty row or row of unknown columns."""
        format, rows = self.make(), self.rows()
        assert len(rows) >= 2, f"{len(rows)} rows; the suite needs at least two"
        assert all(format.recognises(row) is True for row in rows), "a row of the format is not recognised"
        prompt = {"role": "user", "content": "1 + 2"}
        others: tuple[Mapping[str, Any], ...] = ({}, {"text": "1 + 2"}, {"messages": prompt, "gt_answer": "3"}, {"messages": [prompt]})
        for row in (*others, *self.foreign):
            assert format.recognises(row) is False, f"a row of something else is recognised: {row}"

    def test_every_row_becomes_one_of_rlcore(self) -> None:
        """Each converted row has ``messages`` that end with the user's, a unique id if it has one, and the columns that rewards need."""
        format = self.make()
        for prompt in DataSet.of([format.convert(row) for row in self.rows()]).prompts:
            assert set(self.columns) <= set(prompt.columns), f"a row has the columns {sorted(prompt.columns)}, not {self.columns}"

    def test_a_row_says_the_same_again_and_is_not_changed(self) -> None:
        """A row is unchanged by its conversion, and another object of the format converts it alike."""
        format = self.make()
        for row in self.rows():
            kept = copy.deepcopy(row)
            made = format.convert(row)
            assert row == kept, "the row of the data set was changed"
            assert repr(made) == repr(self.make().convert(kept)), "another object of the format makes another row"

    def test_a_row_that_cannot_be_converted_is_a_bad_row(self) -> None:
        """A row that cannot be converted is a BadRow with a reason of one line, and no other error."""
        format = self.make()
        odd: tuple[Any, ...] = (None, 3, "", [], {}, [3], {"a": [{}]})
        spoilt = [{**row, column: value} for row in self.rows()[:1] for column in row for value in odd]
        for row in ({}, *self.broken, *spoilt):
            said = ""
            try:
                format.convert(row)
            except BadRow as bad:
                said = str(bad)
                assert said, "a BadRow without a reason"
                assert "\n" not in said, f"the reason is not a sentence: {said!r}"
            assert said or row not in ({}, *self.broken), f"a row that cannot be converted is converted: {row}"
