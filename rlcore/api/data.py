"""Data sets: what the author of a data source needs, and a command that reads rows without a run.

A plugin registers a ``DataSourceSpec`` by ``rlcore_register_data_sources``; its target is a ``RowSource``, made with its options if its
spec names a model. rlcore checks every row that it yields as it checks the rows of a file: a source only finds them.
``rlcore.testing.DataSourceSuite`` checks the rules of a source.

A row format turns rows that somebody published into such rows: a ``RowFormatSpec`` by ``rlcore_register_row_formats``, whose target is a
``RowFormat``; ``rlcore.testing.RowFormatSuite`` checks its rules. ``read_rows`` reads a data set as a run does: source, columns, format.

``opened`` opens a file, packed with gzip or not, and ``LONGEST_ROW`` is the most bytes that a row may have; ``install_line`` is what to
type for a package that is not here. ``parse_row`` checks one row by the rules of training data, and for the columns that the rewards in
``Routes`` need.

>>> class Countdown(RowSource):
...     def rows(self, path):
...         for number in range(1, 4):
...             yield number, {"messages": {"role": "user", "content": f"{number} - 1"}, "gt_answer": str(number - 1)}
"""

from __future__ import annotations

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.contracts.row_format import RowFormat
from rlcore.data.jsonl import opened
from rlcore.data.prompts import read_rows
from rlcore.data.rows import BadRow, Routes, parse_row
from rlcore.host.bounded_reading import LONGEST_ROW
from rlcore.registry.install import install_line

__all__ = [
    "LONGEST_ROW",
    "BadRow",
    "DataError",
    "Routes",
    "RowFormat",
    "RowSource",
    "install_line",
    "opened",
    "parse_row",
    "read_rows",
]
