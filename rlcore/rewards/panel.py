"""Sixteen bytes that a hosting worker shares with the pool: whether its event loop turns, and which task has it now.

A blocked loop cannot say who blocks it; what it wrote before can.
"""

from __future__ import annotations

import mmap
import os
import struct
import tempfile
import time

__all__ = ["Panel"]

_BEAT = struct.Struct("=d")
_TASK = struct.Struct("=q")
_SIZE = _BEAT.size + _TASK.size


class Panel:
    """One side of it; ``descriptor`` is what the other side opens. The monotonic clock is the same in both processes."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self._map = mmap.mmap(descriptor, _SIZE)

    @classmethod
    def create(cls) -> Panel:
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
