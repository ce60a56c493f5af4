"""The messages between the pool and its workers: length-prefixed pickles of a few records over a dedicated socket.

Also the panel of a asynchronous worker, which both sides map.
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
    """The method of the reward that a task calls."""

    SCORE = "score"
    GROUP = "group"
    CHECK = "check"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The limits at which a worker is replaced.

    It is replaced between two calls after ``items`` tasks, or once its memory has grown by ``growth`` bytes since the start. It is replaced
    during a call that adds more than ``call`` bytes to its memory since its rewards were opened (0: no limit). Such a call is tried once
    more, then its outcome is ``error``."""

    items: int = 10_000
    growth: int = 1 << 30
    call: int = 4 << 30


USUAL_LIMITS = WorkerLimits()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """The first message to a worker. ``asynchronous``: it serves one asynchronous reward, with many concurrent calls."""

    recipes: tuple[RewardRecipe, ...]
    limits: WorkerLimits
    asynchronous: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The message that every reward is built and open."""

    traits: tuple[Traits, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """The message that a reward could not be built. ``infra``: the machine around it failed, so another attempt may succeed."""

    name: str
    reason: str
    infra: bool = False


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """One call of one reward. ``items`` is one rollout, or all rollouts of a group. ``deadline`` is in seconds for the whole call."""

    task_id: int
    reward: int
    call: Call
    items: tuple[RewardInput, ...]
    deadline: float


@pickled_by_fields
@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """The end of a task: one score per item in ``scores``, or the ``complaint`` of a check. ``seconds`` were spent in the reward.

    ``failure`` is the outcome if the reward gave no verdict. ``again``: an accident of the machine justifies one more attempt. ``trace`` is
    the traceback of an exception that is the reward's own fault. ``retire``: the worker is leaving.
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
    """End this process unless it is ``worker``. A child that a reward forked also returns from the call, and must not use the socket."""
    if os.getpid() != worker:
        os._exit(0)


def encode(message: Any) -> bytes:
    """Return one frame: eight bytes of length, then the pickle."""
    body = pickle.dumps(message, protocol=pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Splits a stream of bytes into messages, however the bytes were divided in transit."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Any]:
        """Add bytes, and yield every message that is now complete."""
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
    """Sixteen bytes that a asynchronous worker shares with the pool: whether its event loop makes progress, and which task runs on it.

    A blocked loop cannot report the task that blocks it, but its last entry here can. This object is one side; the other side opens
    ``descriptor``. The monotonic clock is the same in both processes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, _SIZE)

    @classmethod
    def create(cls) -> LoopStatus:
        """Create a panel, with progress recorded now and no task running."""
        with tempfile.TemporaryFile() as file:
            file.write(bytes(_SIZE))  # allocated now: a page that a full disk cannot back would kill the writer by a signal
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
        """Record that the loop makes progress."""
        _BEAT.pack_into(self._map, 0, time.monotonic())

    def enter(self, task_id: int | None) -> None:
        """Record that the task runs on the loop from now on; None: no task does."""
        _TASK.pack_into(self._map, _BEAT.size, -1 if task_id is None else task_id)

    def silent(self) -> float:
        """Return the seconds since the loop last made progress."""
        return time.monotonic() - float(_BEAT.unpack_from(self._map, 0)[0])

    def current(self) -> int | None:
        """Return the task that runs on the loop."""
        task_id = int(_TASK.unpack_from(self._map, _BEAT.size)[0])
        return None if task_id < 0 else task_id

    def close(self) -> None:
        """Release the memory and the descriptor."""
        self._map.close()
        os.close(self.descriptor)
