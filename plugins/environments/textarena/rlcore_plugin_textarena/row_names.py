"""The name of rows, ``GAME?count=100&seed=0&players=2&OPTION=VALUE``. This module imports no game."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

from rlcore.api import DataError

__all__ = ["RowName"]

_EXAMPLE = "GuessTheNumber-v0?count=100&seed=1"


@dataclass(frozen=True)
class RowName:
    """Which games to play. ``players``: how many play; 0: as the game asks for. ``options``: arguments of the game's class."""

    game: str
    count: int
    seed: int
    players: int
    options: dict[str, Any]

    @classmethod
    def parsed(cls, name: str) -> RowName:
        """Return the parts of a name. DataError if there is no game, or a number is none."""
        game, _, query = name.partition("?")
        if not game:
            raise DataError(f"textarena: name a game, for example env:textarena:{_EXAMPLE}")
        given = {key: _value(text) for key, text in parse_qsl(query, keep_blank_values=True)}
        numbers = {key: given.pop(key, default) for key, default in (("count", 100), ("seed", 0), ("players", 0))}
        for key, value in numbers.items():
            lowest = 1 if key == "count" else 0
            if type(value) is not int or value < lowest:
                raise DataError(f"textarena: {key} = {value} of {name} must be a whole number of at least {lowest}, as in {_EXAMPLE}")
        return cls(game, **numbers, options=given)


def _value(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text
