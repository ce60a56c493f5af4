"""What a plugin implements to read the rows of a data set as it was published."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

__all__ = ["RowFormat"]


class RowFormat(ABC):
    """Turns the rows of a data set that somebody published into rows of rlcore; made with nothing. It keeps no state between rows."""

    @abstractmethod
    def recognises(self, row: Mapping[str, Any]) -> bool:
        """Whether a row is one of this format, by the names and shapes of its columns. Cheap, and shy: two formats that recognise one row
        make the user choose."""

    @abstractmethod
    def convert(self, row: Mapping[str, Any]) -> Mapping[str, Any]:
        """The row of rlcore: ``messages``, and the columns that rewards read (``gt_answer``, ``test_cases``). ``row`` is not changed.

        :raises BadRow: the row cannot be converted; one sentence, without its place.
        """
