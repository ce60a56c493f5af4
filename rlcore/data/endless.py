"""Prompts of an endless data set: each is made where it is needed, from its number and its level."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache

from rlcore.contracts.errors import DataError, PluginError, RlcoreError
from rlcore.contracts.row_interfaces import RowGenerator
from rlcore.contracts.types import Prompt
from rlcore.data.row_formats import RowConversion
from rlcore.data.rows import BadRow, Routes, kind_of, parse_row

__all__ = ["FIRST_ROWS", "EndlessPrompts", "Prompts", "prompt_at", "prompt_count", "prompts_of"]

FIRST_ROWS = 8
"""Rows of an endless data set that are checked before a run starts, and that its fingerprint covers."""
_KEPT = 1024
"""Prompts that stay in memory: those in flight, and those of the batch that is written to the rollout log."""


class EndlessPrompts:
    """Prompts without end. ``levels`` is the number of difficulties.

    ``make``: returns the prompt of (number from 0, level); its ``index`` is the number."""

    def __init__(self, make: Callable[[int, int], Prompt], levels: int) -> None:
        self.levels = levels
        self._made = lru_cache(maxsize=_KEPT)(make)

    def at(self, number: int, level: int = 0) -> Prompt:
        """Return one prompt. Raises DataError, with its place, if its row is bad."""
        return self._made(number, level)

    def of_source(self, number: int) -> EndlessPrompts:
        """Return the prompts as those of the run's source ``number``."""
        return EndlessPrompts(lambda row, level: replace(self.at(row, level), source_index=number), self.levels)

    def first(self) -> tuple[Prompt, ...]:
        """Return the rows that are checked before a run starts: the first ones, at level 0."""
        return tuple(map(self.at, range(FIRST_ROWS)))


Prompts = Sequence[Prompt] | EndlessPrompts
"""The prompts of a data set, by their index."""


def prompt_at(prompts: Prompts, index: int, level: int = 0) -> Prompt:
    """Return one prompt. ``level`` counts only if the data set is endless."""
    return prompts.at(index, level) if isinstance(prompts, EndlessPrompts) else prompts[index]


def prompt_count(prompts: Prompts) -> int | None:
    """Return the number of prompts, None if the data set is endless."""
    return None if isinstance(prompts, EndlessPrompts) else len(prompts)


def prompts_of(source: object, path: str, label: str, *, stem: str, conversion: RowConversion, routes: Routes) -> EndlessPrompts:
    """Return the prompts of a generator. Raises DataError if it refuses the path, and PluginError if it breaks its contract.

    :param source: the generator. ``label``: its name and its plugin, for errors.
    :param stem: the beginning of the ids, which count rows from 1, as those of files do: ``stem:1`` is ``row(path, 0, 0)``, and
        ``stem:1@2`` is ``row(path, 0, 2)``.
    """
    if not isinstance(source, RowGenerator):
        raise PluginError(f"{label} declares endless, and its class is not an rlcore.api.data.RowGenerator; fix the plugin")

    def make(number: int, level: int) -> Prompt:
        place = f"{path}:{number + 1}" + (f"@{level}" if level else "")
        try:
            row = _guarded(lambda: source.row(path, number, level), place, f"{label} failed in row({path!r}, {number}, {level})")
            if isinstance(row, BadRow):
                raise row
            if not isinstance(row, Mapping):
                raise DataError(f"{place}: {label} made {kind_of(row)}, not a mapping; fix the plugin")
            name = f"{stem}{place.removeprefix(path)}"
            return parse_row(conversion.row(row), index=number, default_id=name, source=place, routes=routes)
        except BadRow as bad:
            raise DataError(f"{place}: {bad}") from bad.__cause__

    levels = _guarded(lambda: source.levels(path), path, f"{label} failed")
    if not isinstance(levels, int) or levels < 1:
        raise PluginError(f"{path}: {label} has {levels!r} levels, it must be a whole number from 1 on; fix the plugin")
    return EndlessPrompts(make, levels)


def _guarded(call: Callable[[], object], place: str, failed: str) -> object:
    try:
        return call()
    except (RlcoreError, BadRow):
        raise
    except (Exception, SystemExit) as error:  # raised by a plugin
        said = " ".join(f"{type(error).__name__}: {error}".split())[:300]
        raise DataError(f"{place}: {failed} ({said}); fix the data, its options or the plugin") from error
