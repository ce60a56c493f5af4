"""Options of the environment ``textarena``. This module is imported whenever a run is configured, so it imports no game."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

__all__ = ["TextArenaOptions", "wrong_count"]


def wrong_count(row: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return why the players of a run cannot play the game of a row; "" if they can, or if the row does not say how many play."""
    count = row.get("players")
    if not isinstance(count, int) or len(names) == count or (not names and count == 1):
        return ""
    there = f"{row.get('game')} is played by {count}, and the run has {', '.join(names) or 'no players'}"
    return f"{there}; name {count} in [sampling.options.players.NAME]" if count > 1 else f"{there}; leave the players out"


class TextArenaOptions(BaseModel):
    """Options of the environment ``textarena``."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    players: tuple[str, ...] = Field(
        default=(), description="names of [sampling.options.players] in the order of the game's players; none: as the run has them"
    )
    max_tokens: int | None = Field(default=None, ge=1, description="longest answer of a turn, in tokens; none: what is left of -mnt")

    @field_validator("players")
    @classmethod
    def _each_once(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        if twice := sorted({name for name in value if value.count(name) > 1}):
            raise ValueError(
                f"players names {', '.join(twice)} twice; name each player of the game once, in [sampling.options.players.NAME]"
            )
        return value
