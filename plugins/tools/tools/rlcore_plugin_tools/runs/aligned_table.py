"""Prints rows in columns if they fit. A narrower terminal gets a block per row. A file or a pipe gets a line per row, or several tables if
the caller allows that."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from rich.cells import cell_len

from rlcore.api.commands import SteadyConsole, escape_control

__all__ = ["say", "show_rows"]

_GAP = "  "
_PIPE_COLUMNS = 160
"""The width of tables in a file or a pipe, if they may be divided."""


def say(console: SteadyConsole, text: str = "") -> None:
    """Print a line with control characters escaped; on a terminal that is too narrow, wrap it between words."""
    lines = escape_control(text, lines=True).split("\n")
    if console.is_terminal:
        lines = [part for line in lines for part in _folded(line, console.width)]
    for line in lines:
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def show_rows(console: SteadyConsole, headings: Sequence[str], rows: Sequence[Sequence[str]], *, repeated: int = 0) -> None:
    """Print rows under headings; a column without any value is left out.

    :param repeated: the number of first columns that begin each table if a file or a pipe gets several narrow tables. 0: it gets one."""
    used = [place for place in range(len(headings)) if any(row[place] for row in rows)]
    cells = [[escape_control(row[place]) for place in used] for row in rows]
    names = [headings[place] for place in used]
    widths = [max(map(cell_len, column)) for column in zip(names, *cells, strict=True)]
    if console.is_terminal and sum(widths) + len(_GAP) * (len(widths) - 1) > console.width:
        _show_blocks(console, names, cells)
        return
    for table, columns in enumerate(_divided(widths, sum(place < repeated for place in used))):
        if table:
            say(console)
        for number, row in enumerate([names, *cells]):
            line = _GAP.join(row[place] + " " * (widths[place] - cell_len(row[place])) for place in columns).rstrip()
            console.print(line, style=None if number else "bold", markup=False, highlight=False, soft_wrap=True)


def _divided(widths: Sequence[int], repeated: int) -> list[list[int]]:
    """Return the columns of each table, as few tables as fit. ``repeated``: the first columns of all of them; 0: one table of any width."""
    tables = [list(range(repeated))]
    for place in range(repeated, len(widths)):
        wide = sum(widths[known] + len(_GAP) for known in tables[-1]) + widths[place] > _PIPE_COLUMNS
        if repeated and wide and len(tables[-1]) > repeated:
            tables.append(list(range(repeated)))
        tables[-1].append(place)
    return tables


def _show_blocks(console: SteadyConsole, names: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Print a block per row; its first cell is the title."""
    label = max(map(cell_len, names[1:]), default=0)
    for title, *rest in cells:
        console.print(title, style="bold", markup=False, highlight=False, soft_wrap=True)
        for name, cell in zip(names[1:], rest, strict=True):
            if cell:
                start = f"  {name:<{label}}  "
                for line in _folded(cell, console.width, start):
                    console.print(line, markup=False, highlight=False, soft_wrap=True)


def _folded(text: str, width: int, start: str = "") -> list[str]:
    """Return text wrapped to a width. Words longer than a line, such as paths, stay whole so that they can be copied."""
    if cell_len(start + text) <= width:
        return [start + text]
    indent = " " * (len(start) or len(text) - len(text.lstrip()) + 2)
    return textwrap.wrap(
        text, max(width, len(indent) + 10), initial_indent=start, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
