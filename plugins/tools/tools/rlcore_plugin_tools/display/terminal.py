"""A terminal with lines that scroll and a panel below them that is redrawn in place. It is the only writer: all output passes through it.

It knows nothing about runs or the origin of lines.
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
"""Lines that are written again if the terminal wraps them and the panel."""

Panel = Callable[[int, int], Sequence[str]]
"""Available columns and rows -> the lines to draw: at most so many, and none wider."""


class Terminal:
    """A terminal. ``write`` puts text onto it, at once or not at all; ``size`` returns its columns and rows. Any thread may call, and so
    may a signal handler."""

    def __init__(self, write: Callable[[str], None], size: Callable[[], tuple[int, int]]) -> None:
        self._write, self._size = write, size
        self._panel: Panel | None = None
        self._drawn: tuple[str, ...] = ()
        self._columns = 0
        """The width at the last draw."""
        self._waiting: deque[str] = deque()
        self._remembered: deque[str] = deque(maxlen=_REMEMBERED)
        self._lock = threading.RLock()  # reentrant: a handler may run before the holder is recorded
        self._holder: int | None = None

    def note(self, text: str) -> None:
        """Write one or several lines above the panel. Of a program's control sequences only colours remain."""
        self._waiting.append(text)
        self.draw()

    def hold(self, panel: Panel | None) -> None:
        """Show this panel from now on. None: the current panel turns into ordinary lines."""
        if panel is None:
            self.draw()
        self._panel = panel
        self.draw()

    def draw(self) -> None:
        """Redraw the terminal if something has changed."""
        if self._holder == threading.get_ident():  # a signal handler during a draw, which will write the waiting notes
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
            text = "\x1b[H\x1b[2J"  # some terminals wrapped it and some cut it off, so the position is unknown
            notes = max(self._fitting(columns, rows - len(lines)), notes, key=len)
        self._drawn, self._columns = lines, columns
        self._write(text + "".join(f"{note}\n" for note in notes) + "\n".join(lines))

    def _erased(self) -> str:
        """Return codes that move from the end of the panel's last line to the start of its first, and clear from there."""
        up = len(self._drawn) - 1
        return "\r" + (f"\x1b[{up}A" if up > 0 else "") + "\x1b[J" if self._drawn else ""

    def _fitting(self, columns: int, rows: int) -> list[str]:
        """Return the last lines that were written, as many as fit."""
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
    """Return the last state of a progress bar; of control sequences only colours remain."""
    text = line.rstrip("\r").rpartition("\r")[2].expandtabs()
    coloured = _COLOUR.search(text) is not None
    return _CONTROL.sub(lambda found: found[0] if _COLOUR.fullmatch(found[0]) else "", text) + (_RESET if coloured else "")
