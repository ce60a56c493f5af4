"""The first exceptions of each reward, kept with their tracebacks and the text that met them: what its author needs to mend it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

__all__ = ["Faults"]

_KEPT = 10
_TEXT = 2000


class Faults:
    """Not thread-safe: its owner holds a lock. Keeps ten a reward, each raised at another place."""

    def __init__(self, names: Sequence[str]) -> None:
        self._places: dict[str, set[str]] = {name: set() for name in names}
        self._new: list[dict[str, Any]] = []

    def note(self, name: str, *, row: str, reason: str, trace: str, text: str) -> None:
        """The reward ``name`` raised on a response of ``row``."""
        known = self._places[name]
        place = _place(trace)
        if place in known or len(known) >= _KEPT:
            return
        known.add(place)
        self._new.append({"reward": name, "row": row, "reason": reason, "traceback": trace, "text": text[:_TEXT]})

    def take(self) -> list[dict[str, Any]]:
        """Those that are new since the last call, as rows of a JSONL file."""
        taken, self._new = self._new, []
        return taken


def _place(trace: str) -> str:
    """Where it was raised, without what varies from text to text."""
    return "\n".join(line for line in trace.splitlines() if line.startswith("  File "))
