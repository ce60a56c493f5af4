"""How snapshots travel between processes: one end offers the newest, the other holds it whole and verified, or not at all.

Publishing never waits for a receiver; receiving never waits for a publisher; the newest version wins, and versions in between may never
arrive. Transports that need more than one host's own means (Ray) stand with the runtime that uses them, behind the same two classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rlcore.snapshots import Snapshot

__all__ = ["Publisher", "Receiver"]


class Publisher(ABC):
    """The trainer's end (rank 0). One thread calls it; transfers run in the background."""

    @abstractmethod
    def address(self) -> Any:
        """What a receiver needs to find this publisher; picklable."""

    @abstractmethod
    def publish(self, snapshot: Snapshot) -> None:
        """Offer it and return at once. Raises WeightsError where a version does not rise, or where an earlier transfer failed or stood
        still beyond the deadline: the sentence says who waited for whom, and for which version."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; nothing is left in memory or in the file system. May be called twice."""


class Receiver(ABC):
    """A producer's end. ``on_news`` (any thread) is called when ``newer_than`` has something to say, an error too."""

    def __init__(self, name: str, on_news: Callable[[], None]) -> None:
        self.name = name
        self.on_news = on_news

    @abstractmethod
    def newer_than(self, version: int) -> Snapshot | None:
        """The newest snapshot that arrived whole and whose every checksum was verified; None where there is none newer. Does not wait.

        Its arrays may be views of memory that the publisher writes again after ``release``. Raises WeightsError, naming the tensor, for
        a snapshot that arrived damaged, and for a transfer that stood still beyond the deadline."""

    @abstractmethod
    def release(self, version: int) -> None:
        """This snapshot and older ones are not read any more."""

    @abstractmethod
    def close(self) -> None:
        """Free everything. May be called twice."""
