"""For authors of data sources and row formats, and for commands that read rows without a run.

A plugin registers a ``DataSourceSpec`` with ``rlcore_register_data_sources``. Its target is a ``RowSource``, made with its options if its
spec names a model. A source only finds rows: rlcore checks every row that it yields, as it checks the rows of a file.
``rlcore.testing.DataSourceSuite`` checks the rules of a source.

A ``RowGenerator`` is a source without end, whose rows are made when they are needed; its spec says ``endless=True``.
``rlcore.testing.RowGeneratorSuite`` checks its rules.

A row format converts the rows of a published data set to such rows. A plugin registers a ``RowFormatSpec`` with
``rlcore_register_row_formats``; its target is a ``RowFormat``. ``rlcore.testing.RowFormatSuite`` checks its rules.

- ``read_rows`` reads a data set as a run does: source, columns, format.
- ``opened`` opens a file, compressed with gzip or not. ``LONGEST_ROW`` is the largest size of a row in bytes.
- ``RowConversion`` converts single rows, and ``only_place`` finds the column of the prompt or the answer. ``DataSource`` is a data set in
  settings. ``json_value`` returns a value as JSON holds it.
- ``parse_row`` checks one row by the rules of training data, and for the columns that the rewards in ``Routes`` need.
- ``number_text`` writes a number as text, a whole number of many digits too.
- ``ChatTokenizer`` is the base class of a model's tokenizer, which ``rlcore_tokenizer_class`` offers. ``DataSection`` has the settings of
  its chat template, and ``tools_of`` parses the schemas of tools.
- ``install_line`` is the command that installs a missing package.

>>> class Countdown(RowSource):
...     def rows(self, path):
...         for number in range(1, 4):
...             yield number, {"messages": {"role": "user", "content": f"{number} - 1"}, "gt_answer": str(number - 1)}
"""

from __future__ import annotations

from rlcore.config.run_config import DataSection, DataSource
from rlcore.contracts.errors import DataError
from rlcore.contracts.row_interfaces import RowFormat, RowGenerator, RowSource
from rlcore.data.dataset import json_value
from rlcore.data.json_texts import number_text
from rlcore.data.jsonl import opened
from rlcore.data.likely_columns import only_place
from rlcore.data.prompts import read_rows
from rlcore.data.row_formats import RowConversion
from rlcore.data.rows import BadRow, Routes, parse_row
from rlcore.data.tokenizer import ChatTokenizer
from rlcore.data.tool_messages import tools_of
from rlcore.host.bounded_reading import LONGEST_ROW
from rlcore.registry.install import install_line

__all__ = [
    "LONGEST_ROW",
    "BadRow",
    "ChatTokenizer",
    "DataError",
    "DataSection",
    "DataSource",
    "Routes",
    "RowConversion",
    "RowFormat",
    "RowGenerator",
    "RowSource",
    "install_line",
    "json_value",
    "number_text",
    "only_place",
    "opened",
    "parse_row",
    "read_rows",
    "tools_of",
]
