"""Conformance suites for data sources and row formats."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.contracts.row_format import RowFormat
from rlcore.data.dataset import DataSet
from rlcore.data.rows import BadRow

__all__ = ["DataSourceSuite", "RowFormatSuite"]


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


class RowFormatSuite:
    """Subclass it; ``make`` and ``rows`` say what is tested. ``foreign``: rows of other formats that it must not take for its own;
    ``broken``: rows that it recognises, or is told to read, and cannot convert."""

    columns: tuple[str, ...] = ("gt_answer",)
    """Columns that every converted row has beside its messages."""

    foreign: Sequence[Mapping[str, Any]] = ()
    broken: Sequence[Mapping[str, Any]] = ()

    def make(self) -> RowFormat:
        """A fresh format."""
        raise NotImplementedError

    def rows(self) -> Sequence[Mapping[str, Any]]:
        """At least two rows as the data set has them."""
        raise NotImplementedError

    def test_its_rows_are_recognised_and_others_are_not(self) -> None:
        """A row of rlcore, an empty one, one of unknown columns: each is somebody else's."""
        format, rows = self.make(), self.rows()
        assert len(rows) >= 2, f"{len(rows)} rows; the suite needs at least two"
        assert all(format.recognises(row) is True for row in rows), "a row of the format is not recognised"
        prompt = {"role": "user", "content": "1 + 2"}
        others: tuple[Mapping[str, Any], ...] = ({}, {"text": "1 + 2"}, {"messages": prompt, "gt_answer": "3"}, {"messages": [prompt]})
        for row in (*others, *self.foreign):
            assert format.recognises(row) is False, f"a row of something else is recognised: {row}"

    def test_every_row_becomes_one_of_rlcore(self) -> None:
        """Messages whose last is the user's, ids that are unique, the columns that rewards need."""
        format = self.make()
        for prompt in DataSet.of([format.convert(row) for row in self.rows()]).prompts:
            assert set(self.columns) <= set(prompt.columns), f"a row has the columns {sorted(prompt.columns)}, not {self.columns}"

    def test_a_row_says_the_same_again_and_is_not_changed(self) -> None:
        """Every process of a run converts the rows itself."""
        format = self.make()
        for row in self.rows():
            kept = copy.deepcopy(row)
            made = format.convert(row)
            assert row == kept, "the row of the data set was changed"
            assert repr(made) == repr(self.make().convert(kept)), "another object of the format makes another row"

    def test_a_row_that_cannot_be_converted_is_a_bad_row(self) -> None:
        """One sentence, and no other error, whatever the columns hold."""
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
                assert "\n" not in said, f"the reason is no sentence: {said!r}"
            assert said or row not in ({}, *self.broken), f"a row that cannot be converted is converted: {row}"
