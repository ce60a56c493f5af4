"""Reads a CSV file with a header. Every cell is text; an empty one is an absent column."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from io import TextIOWrapper
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api.data import LONGEST_ROW, BadRow, DataError, RowSource, opened

__all__ = ["CsvFile", "CsvOptions"]


class CsvOptions(BaseModel):
    """Options of the data source ``csv``."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    prompt: str | None = Field(
        None, description="column with the user's message, unless there is a column messages, which is JSON; unset: prompt, if there is one"
    )
    delimiter: str = Field(",", min_length=1, max_length=1, description="character between two cells")


class CsvFile(RowSource):
    """The data source ``csv``."""

    def __init__(self, options: CsvOptions) -> None:
        self._options = options

    def rows(self, path: str) -> Iterator[tuple[int, object]]:
        """See RowSource; the number of a row is that of its last line."""
        csv.field_size_limit(LONGEST_ROW)  # the default of the csv module, 131072 characters, is less than a model writes
        try:
            with opened(Path(path), path) as packed, TextIOWrapper(packed, encoding="utf-8-sig", newline="") as file:
                lines = _RowLines(path, file)
                reader = csv.DictReader(lines, delimiter=self._options.delimiter, strict=True)
                if reader.fieldnames and reader.fieldnames[0].startswith(("{", "[")):
                    raise DataError(
                        f"{path}: the file contains JSON, not CSV; its name must end in .jsonl (one row per line) or .json (one list)"
                    )
                self._check_header(path, reader.fieldnames or ())
                lines.row = 0
                for cells in reader:
                    lines.row = 0
                    yield reader.line_num, self._row(cells, len(reader.fieldnames or ()))
        except (UnicodeDecodeError, csv.Error) as error:
            between = f"; the delimiter is {self._options.delimiter!r} unless options = {{delimiter = …}} sets another"
            raise DataError(f"{path}: not a readable CSV file ({error}); save it as CSV in UTF-8{between}") from error

    def _check_header(self, path: str, names: Sequence[str]) -> None:
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise DataError(f'{path}: the header names the column "{twice}" twice, so it is ambiguous; rename one')

    def _row(self, cells: dict[str, str], columns: int) -> object:
        if None in cells:
            return BadRow(f"the row has more cells than the header, which has {columns}; put quotes around a cell with a delimiter")
        row: dict[str, object] = {name: cell for name, cell in cells.items() if cell}
        try:
            if "messages" in row:
                return {**row, "messages": json.loads(str(row["messages"]))}
        except ValueError as error:
            return BadRow(f'the cell "messages" is not JSON ({error})')
        prompt = self._options.prompt or "prompt"
        if prompt not in row:
            if self._options.prompt is None and "prompt" not in cells:
                return row  # columns with other names: for [data.columns], or for a row format
            has = f'the row has no "{prompt}", which is the user\'s message (it has {", ".join(row) or "nothing"})'
            return BadRow(f'{has}; fill that column, or name another: options = {{prompt = "…"}}')
        row["messages"] = {"role": "user", "content": row.pop(prompt)}
        return row


class _RowLines:
    """The lines of a CSV file. Raises DataError if one row has too many characters, since a quote may never be closed; ``row`` counts
    them."""

    def __init__(self, path: str, file: TextIOWrapper) -> None:
        self._path, self._file = path, file
        self.row = self._number = 0

    def __iter__(self) -> Iterator[str]:
        while line := self._file.readline(LONGEST_ROW + 1):
            self._number, self.row = self._number + 1, self.row + len(line)
            if self.row > LONGEST_ROW:
                raise DataError(
                    f"{self._path}:{self._number}: the row has more than {LONGEST_ROW >> 20} MiB, the limit for one row; "
                    "leave it out, or close its quotes"
                )
            yield line
