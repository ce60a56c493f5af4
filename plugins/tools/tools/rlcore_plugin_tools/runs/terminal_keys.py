"""Reads single keys of a terminal, by name. Meanwhile the terminal does not echo or wait for Enter; afterwards its settings are
restored."""

from __future__ import annotations

import codecs
import os
import select
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["TerminalKeys", "single_keys"]

_ESCAPE_SECONDS = 0.05
"""Seconds after an Escape within which an arrow's sequence arrives; a person types nothing so soon after Escape."""
_SEQUENCES = {
    "[A": "up", "[B": "down", "[C": "right", "[D": "left", "OA": "up", "OB": "down", "OC": "right", "OD": "left",
    "[5~": "page up", "[6~": "page down", "[H": "home", "[F": "end", "[1~": "home", "[4~": "end", "OH": "home", "OF": "end",
}  # fmt: skip
_NAMED = {
    "\r": "enter",
    "\n": "enter",
    "\x7f": "backspace",
    "\x08": "backspace",
    "\x04": "end of input",
    "\x03": "interrupt",
    "": "end of input",
}


@contextmanager
def single_keys(handle: int) -> Iterator[TerminalKeys]:
    """Yield the keys of the terminal behind this file descriptor. Control-Z is disabled meanwhile, since it would leave the terminal's
    settings changed."""
    before = termios.tcgetattr(handle)
    try:
        tty.setcbreak(handle)
        now = termios.tcgetattr(handle)
        now[6][termios.VSUSP] = b"\0"
        termios.tcsetattr(handle, termios.TCSADRAIN, now)
        yield TerminalKeys(handle)
    finally:
        termios.tcsetattr(handle, termios.TCSADRAIN, before)


class TerminalKeys:
    """Reads one key at a time."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def key(self, timeout: float) -> str | None:
        """Return a character, or the name of a key (``left``, ``page down``, ``enter``, ``escape``). None if none was typed within
        ``timeout`` seconds, and for an unknown sequence."""
        if not self._waiting(timeout):
            return None
        character = self._character()
        if character == "\x1b":
            return _SEQUENCES.get(self._sequence()) if self._waiting(_ESCAPE_SECONDS) else "escape"
        return _NAMED.get(character, character)

    def _waiting(self, seconds: float) -> bool:
        return bool(select.select([self._handle], [], [], seconds)[0])

    def _character(self) -> str:
        """Return one complete character; "" if the terminal is gone."""
        while True:
            byte = os.read(self._handle, 1)
            if not byte:
                return ""
            if character := self._decoder.decode(byte):
                return character

    def _sequence(self) -> str:
        """Return the characters after an Escape, to the last one of the sequence: ``[C``, ``[5~``, ``OC``."""
        found = self._character()
        while self._waiting(_ESCAPE_SECONDS) and len(found) < 16:
            found += self._character()
            if found[-1:].isalpha() or found.endswith("~"):
                break
        return found
