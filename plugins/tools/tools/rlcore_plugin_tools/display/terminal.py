"""A terminal with lines that scroll, and a panel below them that is redrawn in place. One writer: whatever is to appear goes through here.

Knows nothing of runs, nor where lines come from.
"""

from __future__ import annotations

import re
import threading
from collections import deque
from collections.abc import Callable, Sequence

from rich.cells import cell_len

__all__ = ["Terminal"]

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?|\x1b.?|[\x00-\x08\x0b-\x1f\x7f-\x9f]", re.DOTALL)
_COLOUR = re.compile(r"\x1b\[[0-9;:]*m")
_RESET = "\x1b[0m"
_REMEMBERED = 200
"""Lines that are written again if the terminal folds them and the panel."""

Panel = Callable[[int, int], Sequence[str]]
"""Columns and rows that there are -> the lines to draw, none wider, no more."""


class Terminal:
    """``write`` puts text onto it, at once or not at all; ``size`` is its columns and rows. Any thread may call, and a signal handler."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write, self._size = write, size
        self._panel: Panel | None = None
        self._drawn: tuple[str, ...] = ()
        self._columns = 0
        """When it was drawn last."""
        self._waiting: deque[str] = deque()
        self._remembered: deque[str] = deque(maxlen=_REMEMBERED)
        self._lock = threading.RLock()  # a handler may come before the holder is known
        self._holder: int | None = None

    def note(self, text: str) -> None:
        """A line, or several, above the panel; of what a program meant to do to the terminal only colours are left."""
        self._waiting.append(text)
        self.draw()

    def hold(self, panel: Panel | None) -> None:
        """Show this panel from now on; None: the one that stands becomes lines like the others."""
        if panel is None:
            self.draw()
        self._panel = panel
        self.draw()

    def draw(self) -> None:
        """Bring what is seen up to date."""
        if self._holder == threading.get_ident():  # a signal handler amid a draw, which will find what waits
            return
        with self._lock:
            self._holder = threading.get_ident()
            try:
                self._bring_up_to_date()
                while self._waiting:
                    self._bring_up_to_date()
            finally:
                self._holder = None

    def _bring_up_to_date(self) -> None:
        columns, rows = self._size()
        lines = tuple(self._panel(columns - 1, rows - 1)) if self._panel is not None else ()
        notes = [_tamed(line) for _ in range(len(self._waiting)) for line in self._waiting.popleft().split("\n")]
        if not notes and (lines, columns) == (self._drawn, self._columns):
            return
        self._remembered.extend(notes)
        text = self._erased() if self._panel is not None else "\n" * bool(self._drawn)  # the last panel stays
        if self._panel is not None and columns <= max((_cells(line) for line in self._drawn), default=-1):
            text = "\x1b[H\x1b[2J"  # some terminals folded it, some cut it off: what lies where nobody knows
            notes = max(self._fitting(columns, rows - len(lines)), notes, key=len)
        self._drawn, self._columns = lines, columns
        self._write(text + "".join(f"{note}\n" for note in notes) + "\n".join(lines))

    def _erased(self) -> str:
        """From the end of the panel's last line to the start of its first, with nothing from there on."""
        up = len(self._drawn) - 1
        return "\r" + (f"\x1b[{up}A" if up > 0 else "") + "\x1b[J" if self._drawn else ""

    def _fitting(self, columns: int, rows: int) -> list[str]:
        """The last lines that were written, as many as are seen at once."""
        found: list[str] = []
        for note in reversed(self._remembered):
            rows -= max(1, -(-_cells(note) // columns))
            if rows < 0:
                break
            found.insert(0, note)
        return found


def _cells(line: str) -> int:
    return cell_len(_CONTROL.sub("", line))


def _tamed(line: str) -> str:
    """Of a progress bar its last state; of sequences that command the terminal only colours."""
    text = line.rstrip("\r").rpartition("\r")[2].expandtabs()
    coloured = _COLOUR.search(text) is not None
    return _CONTROL.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text) + (_RESET if coloured else "")
