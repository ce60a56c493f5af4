"""A sampler of a run: its draws are checked, and its errors name it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from operator import index
from textwrap import shorten
from typing import Any

from rlcore.contracts.sampler import Draw, DrawResult, Sampler
from rlcore.registry.error_context import error_context

__all__ = ["ChosenSampler"]

_JSON = "texts, numbers, True, False, None, and lists and mappings of these"


@dataclass(frozen=True, slots=True)
class ChosenSampler:
    """A sampler with its registered name, and ``who`` names it in errors. Every error, and every draw of an item that is not there, is a
    RunError.

    ``items``: their number, None without end. ``levels``: the number of difficulties."""

    sampler: Sampler
    name: str
    who: str
    items: int | None
    levels: int = 1

    def next(self) -> Draw:
        """Return the next draw."""
        with error_context(self.who, "drawing"):
            drawn: Any = self.sampler.next()
            try:
                item, level = map(index, drawn if isinstance(drawn, tuple) else (drawn, 0))
            except (TypeError, ValueError):
                raise TypeError(
                    f"next() returned {shorten(repr(drawn), 60)}, and must return a whole number or Draw(item, level)"
                ) from None
            if item < 0 or not (self.items is None or item < self.items):
                raise ValueError(f"it drew item {item}, and the items are 0 to {self.items and self.items - 1}")
            if not 0 <= level < self.levels:
                raise ValueError(f"it drew level {level}, and the levels are 0 to {self.levels - 1}")
            return Draw(item, level)

    def observe(self, results: Iterable[DrawResult]) -> None:
        """Show the sampler the results, if it reads them."""
        if type(self.sampler).observe is Sampler.observe:
            return
        with error_context(self.who, "seeing the results of an update"):
            for result in results:
                self.sampler.observe(result)

    def state(self) -> dict[str, Any]:
        """Return its name and its state, as values of JSON that no later draw changes."""
        with error_context(self.who, "giving its state"):
            given = self.sampler.state()
            try:
                return {"sampler": self.name, "state": json.loads(json.dumps(dict(given)))}
            except (TypeError, ValueError) as error:
                raise TypeError(f"state() must return a mapping with texts as keys, of {_JSON}: {error}") from error

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what ``state`` returned."""
        with error_context(self.who, "restoring its state"):
            self.sampler.restore(state["state"])
