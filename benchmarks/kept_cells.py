"""Benchmarks of runs that take minutes each: the quickstart's task in several cells. What was measured is kept in a file, so that a program
that was stopped goes on with what is missing; when every cell is there, the table goes into a page between two marks."""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rlcore_plugin_quickstart.assets import prepare
from transformers.utils.logging import disable_progress_bar

from rlcore.api import RlcoreError, UsageError

__all__ = ["CellBench", "Row", "is_of", "read_rows", "write_rows"]

Row = Mapping[str, Any]


def _machine() -> dict[str, Any]:
    """What a row keeps of the machine, taken before the run."""
    return {"load": round(os.getloadavg()[0], 1), "cores": len(os.sched_getaffinity(0))}


@dataclass(frozen=True, kw_only=True)
class CellBench:
    """``name`` as in ``make bench-NAME``; ``measure(cell, run.toml, updates)`` gives a row; ``columns`` maps the heads of the table to what
    a row has there; ``said``: what the line over the table says beyond updates and machine."""

    name: str
    about: str
    cells: Sequence[str]
    results: Path
    page: Path
    measure: Callable[[str, Path, int], dict[str, Any]]
    columns: Mapping[str, Callable[[Row], str]]
    said: Callable[[Sequence[Row]], str]

    def main(self, words: Sequence[str] | None = None) -> int:
        """Measure what is missing, then print everything; the last line is one JSON object."""
        arguments = self._parser().parse_args(words)
        console = Console(stderr=True)
        disable_progress_bar()
        kept = [] if arguments.fresh else read_rows(arguments.results)
        try:
            with tempfile.TemporaryDirectory(prefix="rlcore-bench-") as name:
                toml = prepare(Path(name) / "quickstart", 0, lambda line: console.print(line, highlight=False)).run_toml
                for cell in [cell for cell in arguments.only if not any(is_of(row, cell, arguments.steps) for row in kept)]:
                    console.print(f"{cell}: {arguments.steps} updates …", highlight=False)
                    row = {"cell": cell, **_machine(), **self.measure(cell, toml, arguments.steps)}
                    kept = [*(other for other in kept if not is_of(other, cell, arguments.steps)), row]
                    write_rows(arguments.results, kept)
                    console.print(f"{cell}: {json.dumps(row)}", highlight=False, soft_wrap=True)
        except RlcoreError as error:
            print(f"error: {error}", file=sys.stderr)
            return error.exit_code
        rows = [row for cell in self.cells for row in kept if is_of(row, cell, arguments.steps)]
        if len(rows) == len(self.cells):
            arguments.page.write_text(self.with_table(arguments.page.read_text(encoding="utf-8"), rows), encoding="utf-8")
        Console(width=140).print(self._shown(rows))
        print(json.dumps({"steps": arguments.steps, "cells": {row["cell"]: row for row in rows}}))
        return 0

    def with_table(self, page: str, rows: Sequence[Row]) -> str:
        """The page with these rows between its marks; UsageError if it lacks them."""
        begin, end = (f"<!-- bench-{self.name}: {place} -->" for place in ("begin", "end"))
        before, found, rest = page.partition(begin)
        _, ended, after = rest.partition(end)
        if not found or not ended:
            raise UsageError(f"the page of the table lacks the line {begin} or {end}: the table goes between the two")
        first, loads = rows[0], [row["load"] for row in rows]
        said = (
            f"Made by `make bench-{self.name}`: {first['steps']} updates each, on {first['cores']} cores; load of the machine before a run "
            f"{min(loads)} to {max(loads)}; {self.said(rows)}"
        )
        texts = [[cell(row) for cell in self.columns.values()] for row in rows]
        rule = ["---:" if text[:1].isdigit() and " " not in text else "---" for text in texts[0]]
        table = "\n".join(f"| {' | '.join(line)} |" for line in [list(self.columns), rule, *texts])
        return f"{before}{begin}\n\n{said}\n\n{table}\n\n{end}{after}"

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(description=self.about, formatter_class=argparse.RawDescriptionHelpFormatter)
        parser.add_argument("--steps", type=int, default=100, help="updates of each run (100)")
        parser.add_argument("--only", nargs="+", choices=self.cells, metavar="NAME", default=self.cells, help=f"of {', '.join(self.cells)}")
        parser.add_argument("--fresh", action="store_true", help="measure again what the file of results holds")
        parser.add_argument("--results", type=Path, default=self.results, metavar="FILE", help="where results are kept")
        parser.add_argument("--page", type=Path, default=self.page, metavar="FILE", help="the page that holds the table")
        return parser

    def _shown(self, rows: Iterable[Row]) -> Table:
        made = Table(*self.columns)
        for row in rows:
            made.add_row(*(cell(row) for cell in self.columns.values()))
        return made


def read_rows(path: Path) -> list[dict[str, Any]]:
    """The rows that are kept; none if there is no file."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def write_rows(path: Path, rows: Iterable[Row]) -> None:
    """Keep these rows."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def is_of(row: Row, cell: str, steps: int) -> bool:
    """Whether a row of the results is of this cell and so many updates."""
    return bool(row["cell"] == cell and row["steps"] == steps)
