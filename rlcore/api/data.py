"""Data sets: what the author of a data source needs.

A plugin registers a ``DataSourceSpec`` by ``rlcore_register_data_sources``; its target is a ``RowSource``, made with its options if its
spec names a model. rlcore checks every row that it yields as it checks the rows of a file: a source only finds them.
``rlcore.testing.DataSourceSuite`` checks the rules of a source.

>>> class Countdown(RowSource):
...     def rows(self, path):
...         for number in range(1, 4):
...             yield number, {"messages": {"role": "user", "content": f"{number} - 1"}, "gt_answer": str(number - 1)}
"""

from __future__ import annotations

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.contracts.specs import DataSourceSpec
from rlcore.data.rows import BadRow

__all__ = ["BadRow", "DataError", "DataSourceSpec", "RowSource"]
