"""A checked data set in memory, its fingerprint, and the number of times that its rows count."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import numpy as np

from rlcore.contracts.errors import DataError
from rlcore.contracts.specs import RewardSpec
from rlcore.contracts.types import Message, Prompt
from rlcore.data.endless import EndlessPrompts
from rlcore.data.left_out import LeftOut
from rlcore.data.rows import BadRow, Routes, parse_row

__all__ = ["Collected", "DataSet", "collect", "json_value", "resized"]

_MOST_BAD = 10_000
_MOST_BITS = 10_000
"""Bits of a whole number that Python writes as decimal text: 4300 digits have about 14,000."""


@dataclass(frozen=True, slots=True)
class DataSet:
    """Prompts in order, with ``prompts[i].index == i`` and unique ids. ``fingerprint`` is the sha256 of the content: equal rows have equal
    fingerprints. ``left_out`` are the bad rows that are not among the prompts. ``endless`` makes the prompts of an endless data set; its
    ``prompts`` are the first ones.

    >>> len(DataSet.of([{"messages": {"role": "user", "content": "1 + 2"}, "gt_answer": "3"}]))
    1
    """

    prompts: tuple[Prompt, ...]
    fingerprint: str
    left_out: tuple[LeftOut, ...] = field(default=(), compare=False)
    endless: EndlessPrompts | None = field(default=None, compare=False)

    def __len__(self) -> int:
        return len(self.prompts)

    @classmethod
    def of(cls, rows: Iterable[Mapping[str, Any]], reward_specs: Sequence[RewardSpec] = (), name: str = "rows") -> DataSet:
        """Return a data set of rows in memory, with the same shapes and checks as rows in a file. Ids default to ``rows:1``, ``rows:2``,
        …"""
        return cls.made_of(collect(enumerate(rows, start=1), name=name, stem=name, routes=Routes(tuple(reward_specs))).prompts)

    @classmethod
    def made_of(cls, prompts: Sequence[Prompt], left_out: Iterable[LeftOut] = ()) -> DataSet:
        """Number the prompts, refuse duplicate ids, and compute the fingerprint."""
        numbered = tuple(prompt if prompt.index == index else replace(prompt, index=index) for index, prompt in enumerate(prompts))
        _check_unique(numbered)
        return cls(numbered, _fingerprint(numbered), tuple(left_out))

    def of_source(self, number: int) -> DataSet:
        """Return the data set as that of the run's source ``number``."""
        if not number:
            return self
        endless = self.endless.of_source(number) if self.endless else None
        return replace(self, prompts=tuple(replace(prompt, source_index=number) for prompt in self.prompts), endless=endless)

    def without(self, reasons: Mapping[str, str]) -> DataSet:
        """Return the data set without the prompts from some places, which are left out for a reason.

        :param reasons: place of a prompt -> reason. Prompts from other places stay."""
        if not (gone := {prompt.source: reasons[prompt.source] for prompt in self.prompts if prompt.source in reasons}):
            return self
        places = ((*place.rpartition(":"), reason) for place, reason in gone.items())
        rows = [LeftOut(file, int(number), reason) for file, _, number, reason in places]
        kept = [prompt for prompt in self.prompts if prompt.source not in gone]
        return DataSet.made_of(kept, (*self.left_out, *rows))


@dataclass(frozen=True, slots=True)
class Collected:
    """The prompts of a data source, and the bad rows that were left out."""

    prompts: list[Prompt]
    left_out: list[LeftOut]


def collect(rows: Iterable[tuple[int, object]], *, name: str, stem: str, routes: Routes, drop: bool = False) -> Collected:
    """Return prompts from (line, row). ``DataError`` names the first bad row and counts the others, so that a file is never partly loaded.

    A row that is already a ``BadRow`` could not be read.

    :param name: the place in messages.
    :param stem: the beginning of default ids.
    :param drop: leave bad rows out. ``DataError`` then says that all rows are bad, if they are.
    """
    prompts: list[Prompt] = []
    left_out: list[LeftOut] = []
    for line, row in rows:
        try:
            if isinstance(row, BadRow):
                raise row
            prompts.append(parse_row(row, index=len(prompts), default_id=f"{stem}:{line}", source=f"{name}:{line}", routes=routes))
        except BadRow as error:
            left_out.append(LeftOut(name, line, str(error)))
        if len(left_out) == _MOST_BAD and not (drop and prompts):  # a file of another format may have millions
            break
    if left_out and not (drop and prompts):
        raise DataError(_all_bad(left_out) if drop else _refusal(left_out, advise=bool(prompts)))
    if not prompts:
        raise DataError(f'{name}: the data is empty; it needs at least one row like {{"messages": …, "gt_answer": "3"}}')
    return Collected(prompts, left_out)


def _refusal(bad: Sequence[LeftOut], *, advise: bool) -> str:
    """Return the sentence about bad rows that may not be left out.

    :param advise: say how to leave them out, because other rows are good."""
    more = f"and {_least(bad)}{len(bad) - 1} more bad row{'s' if len(bad) > 2 else ''} in this file" if len(bad) > 1 else ""
    drop = f"--bad-rows drop leaves {'them' if len(bad) > 1 else 'such rows'} out" if advise else ""
    notes = "; ".join(filter(None, (more, drop)))
    return f"{bad[0].place}: {bad[0].reason}" + (f" ({notes})" if notes else "")


def _all_bad(bad: Sequence[LeftOut]) -> str:
    """Return the sentence about a data set whose rows are all bad, so that nothing would remain."""
    others = (
        f"; so are all other rows of this file ({_least(bad)}{len(bad)} in all)" if len(bad) > 1 else "; it is the only row of this file"
    )
    return f"{bad[0].place}: {bad[0].reason}{others}, and --bad-rows drop leaves none"


def _least(bad: Sequence[LeftOut]) -> str:
    return "at least " if len(bad) == _MOST_BAD else ""


def resized(prompts: Sequence[Prompt], ratio: float) -> list[Prompt]:
    """Return a data set repeated ``ratio`` times: 2 repeats it twice, 0.5 takes half of it, spread evenly over its length.

    The copies are named ``id#2``, ``id#3``, …; at least one row remains. There is no randomness: the same file and ratio give the same
    list.
    """
    count = max(1, round(len(prompts) * ratio))
    if count <= len(prompts):
        return [prompts[place * len(prompts) // count] for place in range(count)]
    copies = ((prompts[place % len(prompts)], place // len(prompts) + 1) for place in range(len(prompts), count))
    return [*prompts, *(replace(prompt, prompt_id=f"{prompt.prompt_id}#{number}") for prompt, number in copies)]


def _check_unique(prompts: Sequence[Prompt]) -> None:
    seen: dict[str, Prompt] = {}
    first: tuple[Prompt, Prompt] | None = None
    repeats = 0
    for prompt in prompts:
        other = seen.setdefault(prompt.prompt_id, prompt)
        if other is not prompt:
            first, repeats = first or (prompt, other), repeats + 1
    if first is not None:
        prompt, other = first
        more = f" (and {repeats - 1} more repeated)" if repeats > 1 else ""
        raise DataError(f'{prompt.source}: the id "{prompt.prompt_id}" is taken by {other.source}; ids must be unique{more}')


def _fingerprint(prompts: Iterable[Prompt]) -> str:
    digest = hashlib.sha256()
    for prompt in prompts:
        record = [prompt.prompt_id, [_content(m) for m in prompt.messages], dict(prompt.columns), prompt.reward]
        try:
            text = _written(record)
        except (TypeError, ValueError) as error:
            raise DataError(f"{prompt.source}: {error}; columns may hold text, numbers, true, false, lists and objects") from error
        digest.update(text.encode("ascii") + b"\n")
    return digest.hexdigest()


def _content(message: Message) -> list[Any]:
    """Return role and content, and the fields about tools if the message has some."""
    plain = message.plain()
    return [plain.pop("role"), plain.pop("content"), *([plain] if plain else [])]


def _written(record: Any) -> str:
    try:
        return json.dumps(record, sort_keys=True, separators=(",", ":"), default=json_value)
    except ValueError:  # a whole number of more digits than Python writes
        return json.dumps(_with_short_numbers(record), sort_keys=True, separators=(",", ":"), default=json_value)


def _with_short_numbers(value: Any) -> Any:
    """Return the value with long whole numbers as hexadecimal text, which has no limit."""
    if isinstance(value, Mapping):
        return {key: _with_short_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_with_short_numbers(item) for item in value]
    return hex(value) if isinstance(value, int) and value.bit_length() > _MOST_BITS else value


def json_value(value: object) -> object:
    """Convert a value that tables hold and JSON does not have: the ``default`` of ``json.dumps``."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, datetime | date | time | Decimal):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"a column holds a Python {type(value).__name__}")
