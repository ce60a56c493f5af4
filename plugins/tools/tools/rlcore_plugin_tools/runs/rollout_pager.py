"""Shows rollouts one at a time on a terminal, controlled by single keys."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from rich.cells import chop_cells, set_cell_size

from rlcore.api.commands import escape_control
from rlcore_plugin_tools.runs.rollout_cursor import RolloutCursor
from rlcore_plugin_tools.runs.rollout_text import rollout_lines
from rlcore_plugin_tools.runs.terminal_keys import TerminalKeys, single_keys

__all__ = ["page"]

_KEYS = "n next  p previous  / search  q quit"
_REDRAW_SECONDS = 0.5
"""Seconds until a resized window is drawn again."""


def page(reel: RolloutCursor) -> None:
    """Show the rollouts until q is typed. Standard input and output must be a terminal; ``reel`` must not be empty."""
    with _own_screen(), single_keys(sys.stdin.fileno()) as keys:
        _Pager(reel, keys).run()


@contextmanager
def _own_screen() -> Iterator[None]:
    """Use the terminal's second screen, so that the content of the first one comes back afterwards."""
    sys.stdout.write("\x1b[?1049h\x1b[?25l")
    try:
        yield
    finally:
        sys.stdout.write("\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _window() -> tuple[int, int]:
    """Return columns and rows of the terminal itself, whatever the environment says."""
    try:
        found = os.get_terminal_size(sys.stdout.fileno())
    except OSError:
        return 80, 24
    return max(found.columns, 2), max(found.lines, 2)


class _Pager:
    """The state of the pager: the shown rollout, its first visible line, and the text of the status line."""

    def __init__(self, reel: RolloutCursor, keys: TerminalKeys) -> None:
        self._reel, self._keys = reel, keys
        self._place, self._top = 0, 0
        self._said, self._words = "", ""
        self._size = (0, 0)

    def run(self) -> None:
        """Draw, wait for a key, and execute its action, again and again."""
        actions = self._actions()
        self._draw()
        while True:
            key = self._keys.key(_REDRAW_SECONDS)
            if key in ("q", "escape", "interrupt", "end of input"):
                return
            if key is not None and key in actions:
                self._said = ""
                actions[key]()
                self._draw()
            elif _window() != self._size:
                self._draw()

    def _actions(self) -> Mapping[str, Callable[[], None]]:
        onward, back = (lambda: self._go(self._place + 1)), (lambda: self._go(self._place - 1))
        moves: dict[str, Callable[[], None]] = {"n": onward, "right": onward, "enter": onward, "p": back, "left": back, "/": self._search}
        moves |= {
            "down": lambda: self._scroll(1),
            "j": lambda: self._scroll(1),
            "up": lambda: self._scroll(-1),
            "k": lambda: self._scroll(-1),
        }
        moves |= {" ": lambda: self._scroll(self._room), "page down": lambda: self._scroll(self._room)}
        moves |= {"b": lambda: self._scroll(-self._room), "page up": lambda: self._scroll(-self._room)}
        return moves | {"home": lambda: self._go(0), "end": self._go_to_end}

    @property
    def _room(self) -> int:
        """The number of lines above the status line."""
        return max(self._size[1] - 1, 1)

    def _go(self, place: int) -> None:
        if place < 0:
            self._said = "this is the first"
        elif self._reel.at(place) is None:
            self._said = "this is the last"
        else:
            self._place, self._top = place, 0

    def _go_to_end(self) -> None:
        place = self._place
        while self._reel.at(place + 1) is not None:
            place += 1
        self._go(place)

    def _scroll(self, lines: int) -> None:
        self._top = max(0, min(self._top + lines, len(self._lines()) - self._room))

    def _search(self) -> None:
        typed = self._typed()
        if typed is None:
            return
        self._words = typed or self._words
        if self._words:
            place = self._reel.find(self._words, self._place + 1)
            self._said = f"no later rollout contains {self._words}" if place is None else ""
            self._go(self._place if place is None else place)

    def _typed(self) -> str | None:
        """Return the text typed after the slash; "" repeats the last search, None if the search was cancelled."""
        typed = ""
        while True:
            self._status(f"/{typed}")
            while (key := self._keys.key(_REDRAW_SECONDS)) is None:
                pass
            if key == "enter":
                return typed
            if key in ("escape", "interrupt", "end of input"):
                return None
            if key == "backspace":
                typed = typed[:-1]
            elif len(key) == 1:
                typed += key

    def _lines(self) -> list[str]:
        row = self._reel.at(self._place)
        lines = rollout_lines(row) if row is not None else []
        return [part for line in lines for part in (chop_cells(line, self._size[0]) or [""])]

    def _draw(self) -> None:
        self._size = _window()
        shown = self._lines()[self._top : self._top + self._room]
        sys.stdout.write("\x1b[H\x1b[2J" + "\n".join(shown))
        self._status(self._said or self._where())

    def _where(self) -> str:
        more = self._top + self._room < len(self._lines())
        return f"{self._place + 1}{f' of {self._reel.known}' if self._reel.whole else ''}{'  ↓ more below' if more else ''}  {_KEYS}"

    def _status(self, text: str) -> None:
        columns, rows = self._size
        sys.stdout.write(f"\x1b[{rows};1H\x1b[2K\x1b[7m{set_cell_size(escape_control(text), max(columns - 1, 1))}\x1b[0m")
        sys.stdout.flush()
