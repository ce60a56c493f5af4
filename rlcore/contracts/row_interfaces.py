"""The base classes of plugins that find and read the rows of data sets."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from itertools import count
from typing import Any

__all__ = ["RowFormat", "RowGenerator", "RowSource"]


class RowSource(ABC):
    """A reader of the rows of a data set. Made with its options, or without arguments if it has none."""

    endless: bool = False

    @abstractmethod
    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """Yield (number from 1, row) for each row, in the same order every time.

        A row has the content of one line of a JSONL file: a mapping with ``messages`` and the columns that the rewards need. For a row that
        cannot be read, yield a ``BadRow`` with the reason in place of the mapping; the other rows are then still checked.

        :param path: as the user typed it, including the prefix.
        :raises DataError: the data set as a whole cannot be read.
        """


class RowGenerator(RowSource):
    """A source of rows without end, each made when it is needed. Since 2.0.

    Every process of a run makes the rows that it needs, so the same arguments must give the same row on any machine, in any order. Both
    methods raise DataError, with a message that begins with the path, if the path means nothing.
    """

    endless = True

    @abstractmethod
    def row(self, path: str, number: int, level: int) -> object:
        """Return row ``number`` (from 0) at difficulty ``level`` (0 … levels - 1): a mapping as ``rows`` yields it, or a BadRow."""

    def levels(self, path: str) -> int:
        """Return the number of difficulties, 1 if all rows are alike. Level 0 is the easiest."""
        return 1

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """Yield the rows at level 0, for a run that reads a bounded number of them (``--max-rows``)."""
        return ((number + 1, self.row(path, number, 0)) for number in count())


class RowFormat(ABC):
    """A converter from the rows of a published data set to rows of rlcore. Made without arguments; it keeps no state between rows."""

    @abstractmethod
    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row has this format, judged by the names and shapes of its columns.

        Be fast and strict: if two formats recognise one row, the user must choose.
        """

    @abstractmethod
    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the row of rlcore: ``messages``, and the columns that rewards read (``gt_answer``, ``test_cases``). Do not change ``row``.

        :raises BadRow: the row cannot be converted. The message is one sentence without the row's place.
        """
