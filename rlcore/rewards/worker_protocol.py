"""What the pool and its workers say to each other: length-prefixed pickles of a few records over a socket of their own; and the panel of a
asynchronous worker, which both sides map.
"""

from __future__ import annotations

import mmap
import os
import pickle
import struct
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from rlcore.contracts.pickling import pickled_by_fields
from rlcore.contracts.types import Outcome, RewardInput, Score
from rlcore.rewards.reward_entry import RewardRecipe, Traits

__all__ = [
    "USUAL_LIMITS",
    "Broken",
    "Call",
    "Done",
    "FrameReader",
    "LoopStatus",
    "Ready",
    "Task",
    "WorkerLimits",
    "WorkerSetup",
    "encode",
    "end_fork",
]

_LENGTH = struct.Struct("!Q")


class Call(StrEnum):
    """Which method of the reward a task runs."""

    SCORE = "score"
    GROUP = "group"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """When a worker is replaced: between two calls after ``items`` tasks, or once its memory grew by ``growth`` bytes since the start; and
    in the middle of a call that makes it hold ``call`` bytes more than when its rewards were open (0: no bound). Such a call is tried once
    more, then it is an ``error``."""

    items: int = 10_000
    growth: int = 1 << 30
    call: int = 4 << 30


USUAL_LIMITS = WorkerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """First message to a worker. ``asynchronous``: it serves one asynchronous reward, many calls at once."""

    recipes: tuple[RewardRecipe, ...]
    limits: WorkerLimits
    asynchronous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """Every reward is built and open."""

    traits: tuple[Traits, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A reward could not be built. ``infra``: the machine around it failed, so another attempt may succeed."""

    name: str
    reason: str
    infra: bool = False


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One call of one reward: ``items`` is one rollout, or all of a group. ``deadline`` in seconds for the whole call."""

    task_id: int
    reward: int
    call: Call
    items: tuple[RewardInput, ...]
    deadline: float


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """A task's end: ``scores`` one per item, or for a check ``complaint``. ``seconds`` in the reward.

    ``failure``: the outcome where the reward gave no verdict; ``again``: an accident of the machine, worth one more attempt; ``trace``:
    the traceback of an exception that is the reward's own fault; ``retire``: the worker leaves.
    """

    task_id: int
    scores: tuple[Score, ...] = ()
    complaint: str | None = None
    seconds: float = 0.0
    failure: Outcome | None = None
    again: bool = False
    trace: str = ""
    retire: bool = False


def end_fork(worker: int) -> None:
    """End this process unless it is that ``worker``: a child that a reward forked came back from its call too, and the socket is not its
    own."""
    if os.getpid() != worker:
        os._exit(0)


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


_BEAT = struct.Struct("=d")
_TASK = struct.Struct("=q")
_SIZE = _BEAT.size + _TASK.size


class LoopStatus:
    """Sixteen bytes that a asynchronous worker shares with the pool: whether its event loop turns, and which task has it now. A blocked
    loop cannot say who blocks it; what it wrote before can.

    One side of it; ``descriptor`` is what the other side opens. The monotonic clock is the same in both processes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, _SIZE)

    @classmethod
    def create(cls) -> LoopStatus:
        """A new one, the loop turning now and no task having it."""
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_SIZE))  # allocated now: a page that a full disk cannot back would end the writer by a signal
            file.flush()
            descriptor = os.dup(file.fileno())
        try:
            panel = cls(descriptor)
        except BaseException:
            os.close(descriptor)
            raise
        panel.enter(None)
        panel.beat()
        return panel

    def beat(self) -> None:
        """The loop turns."""
        _BEAT.pack_into(self._map, 0, time.monotonic())

    def enter(self, task_id: int | None) -> None:
        """That task has the loop from now on; None: nobody has."""
        _TASK.pack_into(self._map, _BEAT.size, -1 if task_id is None else task_id)

    def silent(self) -> float:
        """Seconds since the loop turned last."""
        return time.monotonic() - float(_BEAT.unpack_from(self._map, 0)[0])

    def current(self) -> int | None:
        """The task that has the loop."""
        task_id = int(_TASK.unpack_from(self._map, _BEAT.size)[0])
        return None if task_id < 0 else task_id

    def close(self) -> None:
        """Give the memory and the descriptor back."""
        self._map.close()
        os.close(self.descriptor)
