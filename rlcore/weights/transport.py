"""How snapshots travel between processes: one end offers the newest, the other holds it whole and verified, or not at all.

Publishing never waits for a receiver; receiving never waits for a publisher; the newest version wins, and versions in between may never
arrive. Transports that need more than one host's own means (Ray) stand with the runtime that uses them, behind the same two classes.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from rlcore.errors import WeightsError
from rlcore.snapshots import Snapshot

__all__ = ["OnFailure", "Publisher", "Receiver"]

OnFailure = Callable[[WeightsError], None]
"""Told, in some thread, what ended a transfer that nobody waits for; the next ``publish`` raises the same."""


class Publisher(ABC):
    """The trainer's end (rank 0). One thread calls it; transfers run in the background.

    ``on_failure`` is for a trainer that may not publish again for long: where no producer gets weights, nothing to train on arrives.
    """

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self.on_failure: OnFailure = on_failure if on_failure is not None else _unheard

    @abstractmethod
    def address(self) -> Any:
        """What a receiver needs to find this publisher; picklable."""

    @abstractmethod
    def publish(self, snapshot: Snapshot) -> None:
        """Offer it and return at once. Raises WeightsError where a version does not rise, or where an earlier transfer failed or stood
        still beyond the deadline: the sentence says who waited for whom, and for which version."""

    def left(self, name: str) -> None:  # noqa: B027 - most transports notice a death by themselves
        """The process of receiver ``name`` died. Any thread; for transports in which the others would wait for it (collective)."""

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
        """This snapshot and older ones are not read any more. Call it as soon as the engine has taken them: the publisher's memory is
        bounded, and a version that is held keeps later ones from everybody."""

    @abstractmethod
    def close(self) -> None:
        """Free everything. May be called twice."""


def _unheard(error: WeightsError) -> None:
    """Nobody asked to be told; ``publish`` will say it."""
