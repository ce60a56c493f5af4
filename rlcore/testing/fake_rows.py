"""A data source and a weight transfer for tests: rows out of the path's own letters, and weights that stay in the process."""

from __future__ import annotations

from collections.abc import Iterator

from rlcore.contracts.errors import DataError
from rlcore.contracts.interfaces import RowSource
from rlcore.weights.memory import MemoryTransfer

__all__ = ["FakeRows", "FakeTransfer"]


class FakeRows(RowSource):
    """Reads ``fake:abc``: one row a letter, whose task is to say it."""

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource."""
        letters = path.removeprefix("fake:")
        if not letters:
            raise DataError(f"{path}: no letter stands behind fake:")
        for number, letter in enumerate(letters, start=1):
            yield number, {"messages": {"role": "user", "content": letter}, "gt_answer": letter}


class FakeTransfer(MemoryTransfer):
    """Weights within one process, under another name than ``memory``."""
