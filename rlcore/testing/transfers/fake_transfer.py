"""A weight transfer whose weights stay in the process."""

from __future__ import annotations

from rlcore.weights.memory import MemoryTransfer

__all__ = ["FakeTransfer"]


class FakeTransfer(MemoryTransfer):
    """Weights within one process, under another name than ``memory``."""
