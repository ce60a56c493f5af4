"""What the pool and its workers say to each other: length-prefixed pickles of a few records over a socket of their own."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rlcore.rewards.entry import RewardRecipe, Traits
from rlcore.types import RewardInput, Score

__all__ = ["Broken", "Call", "Done", "FrameReader", "Ready", "Setup", "Task", "encode"]

_LENGTH = struct.Struct("!Q")


class Call(StrEnum):
    """Which method of the reward a task runs."""

    SCORE = "score"
    GROUP = "group"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setup:
    """First message to a worker. It retires after ``max_items`` tasks, or once its memory grew by ``max_growth`` bytes since the start."""

    recipes: tuple[RewardRecipe, ...]
    max_items: int
    max_growth: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Every reward is built and open."""

    traits: tuple[Traits, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A reward could not be built."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One call of one reward: ``items`` is one rollout, or all of a group. ``deadline`` in seconds for the whole call."""

    task_id: int
    reward: int
    call: Call
    items: tuple[RewardInput, ...]
    deadline: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A task's end: ``scores`` one per item, or for a check ``complaint``. ``seconds`` in the reward; ``retire``: the worker leaves."""

    task_id: int
    scores: tuple[Score, ...] = ()
    complaint: str | None = None
    seconds: float = 0.0
    retire: bool = False


def encode(message: Any) -> bytes:
    """One frame: eight bytes of length, then the pickle."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a stream of bytes into messages, however the bytes were split on the way."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Add bytes; yield every message that is now whole."""
        self._buffer += data
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                return
            body = bytes(self._buffer[_LENGTH.size : end])
            del self._buffer[:end]
            yield pickle.loads(body)
