"""How weights travel: one end takes them from the trainer, bucket by bucket, and offers the newest version; the other holds it whole and
verified, or not at all.

Publishing waits only for the end of a receiver that was given up; receiving never waits for a publisher; the newest version wins, and
versions in between may never arrive. A weight transfer is a plugin: a ``WeightTransfer`` makes both ends, each in the process that
needs it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, WeightSource

__all__ = ["OnFailure", "Publisher", "Receiver", "WeightTransfer"]

OnFailure = Callable[[WeightsError], None]
"""Told, in some thread, what ended a transfer that nobody waits for; the next ``publish`` raises the same."""


class Publisher(ABC):
    """The trainer's end (rank 0). One thread calls it; transfers run in the background.

    ``on_failure`` is for a trainer that may not publish again for long: where no producer gets weights, nothing to train on arrives.
    ``on_drop`` is told, in some thread, in one sentence, of a receiver that the publisher waits for no more: its producer is replaced.
    ``on_end`` is told the name of such a receiver if its process still runs. The runtime ends that producer by its own handle, on whatever
    host it is. A publisher must not end a process by a number that a receiver has sent: the number may name another process here.
    """

    who = "the weight transfer"
    """Begins sentences about it; the runtime puts the names of the transfer and of its distribution here."""

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self.on_failure: OnFailure = on_failure if on_failure is not None else _unheard
        self.on_drop: Callable[[str], None] = _unheard
        self.on_end: Callable[[str], None] = _unheard

    @abstractmethod
    def address(self) -> Any:
        """What a receiver needs to find this publisher; picklable."""

    @abstractmethod
    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        """Take every bucket of the source, and return: the trainer stands still for that copy alone, and may change its weights afterwards.

        Waits for no receiver, but for the end of one that was given up and whose memory is needed. Raises WeightsError if a version does
        not rise, if the source does not hand out what its manifest says, or if an earlier transfer failed: the sentence says who waited for
        whom, and for which version. What it raised for is not published."""

    def left(self, name: str) -> None:  # noqa: B027 - most transports notice a death by themselves
        """The process of receiver ``name`` died. Any thread; for transports in which the others would wait for it (collective): a group
        that had it as a member is built anew without it."""

    @abstractmethod
    def close(self) -> None:
        """Free everything; nothing is left in memory or in the file system. May be called twice."""


class Receiver(ABC):
    """A producer's end. ``on_news`` (any thread) is called when ``newer_than`` has something to say, an error too.
    ``who``: see Publisher."""

    who = "the weight transfer"

    def __init__(self, name: str, on_news: Callable[[], None]) -> None:
        self.name = name
        self.on_news = on_news

    def introduce(self, engine: Mapping[str, Any]) -> None:  # noqa: B027 - a transfer through the host need not know engines
        """What the engine says of itself (``InferenceBackend.describe``); called once, before ``newer_than``. For a transfer of engines'
        own, whose publisher must know its members before it builds a group."""

    @abstractmethod
    def newer_than(self, version: int) -> Snapshot | None:
        """The newest snapshot that arrived whole and whose every checksum was verified; None where there is none newer. Does not wait.

        Its arrays may be views of memory that the publisher writes again after ``release``. Raises WeightsError, naming the tensor, for
        a snapshot that arrived damaged, and for a transfer that stood still beyond the deadline.

        A transfer of engines' own hands out a ``RemoteSnapshot``, once for each group that is to send it: the engine joins the group and
        takes the bytes before anything else is asked for. If the group breaks, the version is offered again, under a higher epoch."""

    def on_group_broken(self, epoch: int) -> None:  # noqa: B027 - for transfers of engines' own
        """The engine raised GroupBrokenError over a snapshot of this epoch, and has not taken it whole: the publisher cannot know that,
        if the group stands at its end. It ends that group and offers the version, or a newer one, under a higher epoch."""

    @abstractmethod
    def release(self, version: int) -> None:
        """This snapshot and older ones are not read any more. Call it as soon as the engine has taken them: the publisher's memory is
        bounded, and a receiver that holds a version may be told of no other, and be ended in the end."""

    @abstractmethod
    def close(self) -> None:
        """Free everything. May be called twice."""


class WeightTransfer(ABC):
    """Makes the two ends of a way for weights. The target of a ``WeightTransferSpec``; made with its options where the spec names a model.

    Both ends of a run are made by the same plugin with the same options, so an address needs to be understood by its own receiver only.
    """

    @abstractmethod
    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> Publisher:
        """The trainer's end, in the process of rank 0.

        :param deadline: seconds that a transfer may stand still.
        :param bucket_bytes: what it asks a source's ``buckets`` for, as the other ranks do, who attend.
        :param device: where the trainer keeps its weights, ``cpu`` or ``cuda``; for transfers between devices.
        :param on_failure: see ``Publisher``.
        """

    @abstractmethod
    def receiver(self, *, name: str, address: Any, deadline: float, on_news: Callable[[], None]) -> Receiver:
        """A producer's end, in the producer's process. WeightsError if the publisher cannot be reached.

        :param name: of the producer; sentences name it.
        :param address: what the publisher's ``address`` returned, after pickling.
        :param deadline: seconds that a transfer may stand still.
        :param on_news: see ``Receiver``.
        """


def _unheard(what: Any) -> None:
    """Nobody asked to be told; ``publish`` will say it if it failed."""
