"""A tracker that writes one line for each figure into its own file."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pydantic import BaseModel, ConfigDict, Field

from rlcore.api import RunInfo, Tracker


class LineOptions(BaseModel):
    """Options of the tracker ``acme_lines``."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    path: str = Field("lines.txt", description="file in the run folder, or anywhere if it is absolute")
    prefix: str = Field("", description="the beginning of every line")
    only: tuple[str, ...] = Field((), description="figures to keep, by the beginning of their name; none: all")


class LineTracker(Tracker):
    """Writes lines of prefix, step, name and value."""

    def __init__(self, options: LineOptions) -> None:
        self._options = options
        self._file: TextIO | None = None

    def open(self, run: RunInfo) -> None:
        """Open the file; a relative path is in the run folder. If the run resumes, remove the lines of later steps."""
        path = run.folder / Path(self._options.path)
        lines = path.read_text(encoding="utf-8").splitlines(keepends=True) if run.step and path.exists() else []
        self._file = path.open("w", encoding="utf-8")
        self._file.writelines(line for line in lines if int(line.removeprefix(self._options.prefix).split()[0]) <= run.step)

    def log(self, record: Mapping[str, Any]) -> None:
        """Write a line for each selected figure."""
        assert self._file is not None
        for name, value in record.items():
            if name != "step" and (not self._options.only or name.startswith(self._options.only)):
                self._file.write(f"{self._options.prefix}{record['step']} {name} {value}\n")

    def close(self) -> None:
        """Close the file."""
        if self._file is not None:
            self._file.close()
