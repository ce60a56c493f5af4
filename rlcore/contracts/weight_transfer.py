"""The transfer of weights.

One end takes them from the trainer, bucket by bucket, and offers the newest version. The other end holds a version complete and verified,
or not at all.

Publishing waits only for the end of a receiver that was given up. Receiving never waits for a publisher. The newest version wins, and
versions in between may never arrive. A weight transfer is a plugin: a ``WeightTransfer`` creates both ends, each in the process that needs
it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot, WeightSource

__all__ = ["OnFailure", "Publisher", "Receiver", "WeightTransfer"]

OnFailure = Callable[[WeightsError], None]
"""Called, in any thread, with the error that ended a transfer in the background. The next ``publish`` raises the same error."""


class Publisher(ABC):
    """The trainer's end (rank 0). One thread calls it; transfers run in the background.

    ``on_failure``: informs a trainer that may not publish again for a long time: if no producer receives weights, no groups to train on
        arrive.
    ``on_drop``: called, in any thread, with a sentence about a receiver that the publisher has given up. The producer of that receiver is
        replaced.
    ``on_end``: called with the name of such a receiver if its process still runs. The runtime ends that producer by its own handle, on any
        host. A publisher must not end a process by a number that a receiver has sent: on this host the number may name another process.
    """

    who = "the weight transfer"
    """The beginning of messages about the transfer. The runtime sets it to the names of the transfer and of its distribution."""

    def __init__(self, on_failure: OnFailure | None = None) -> None:
        self.on_failure: OnFailure = on_failure if on_failure is not None else _unheard
        self.on_drop: Callable[[str], None] = _unheard
        self.on_end: Callable[[str], None] = _unheard

    @abstractmethod
    def address(self) -> Any:
        """Return the address by which a receiver finds this publisher; picklable."""

    @abstractmethod
    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        """Copy every bucket of the source, then return. The trainer stalls only during that copy, and may change its weights afterwards.

        The call does not wait for receivers, except for the end of one that was given up and whose memory is needed.

        :raises WeightsError: the version does not rise, the source does not yield what its manifest says, or an earlier transfer failed.
            The message says which side waited for which, and for which version. The version of the failed call is not published.
        """

    def left(self, name: str) -> None:  # noqa: B027 - most transports notice a death by themselves
        """Handle the death of the process of receiver ``name``. Called in any thread.

        For transfers in which the others would wait for it (collective): a group with that member is built anew without it.
        """

    @abstractmethod
    def close(self) -> None:
        """Free everything, and leave nothing in memory or in the file system. May be called twice."""


class Receiver(ABC):
    """A producer's end.

    ``on_news`` is called, in any thread, when ``newer_than`` has a snapshot or an error to report. ``who``: see Publisher.
    """

    who = "the weight transfer"

    def __init__(self, name: str, on_news: Callable[[], None]) -> None:
        self.name = name
        self.on_news = on_news

    def introduce(self, engine: Mapping[str, Any]) -> None:  # noqa: B027 - a transfer through the host need not know engines
        """Receive the engine's description (``InferenceBackend.describe``). Called once, before ``newer_than``.

        For engine transfers, whose publisher must know its members before it builds a group.
        """

    @abstractmethod
    def newer_than(self, version: int) -> Snapshot | None:
        """Return the newest snapshot that arrived completely and whose checksums were all verified; None if there is no newer one.

        Does not wait.

        The snapshot's arrays may be views of memory that the publisher reuses after ``release``. An engine transfer returns a
        ``RemoteSnapshot``, once for each group that will send it. The engine joins the group and fetches the bytes before any other call.
        If the group breaks, the version is offered again, under a higher epoch.

        :raises WeightsError: a snapshot arrived damaged (the message names the tensor), or a transfer stalled beyond the deadline.
        """

    def on_group_broken(self, epoch: int) -> None:  # noqa: B027 - for transfers of engines' own
        """Handle a GroupBrokenError that the engine raised for a snapshot of this epoch, before it had received all of it.

        The publisher cannot know of the failure if the group is intact at its own end. It ends that group and offers the version, or a
        newer one, under a higher epoch.
        """

    @abstractmethod
    def release(self, version: int) -> None:
        """Declare that this snapshot and older ones are no longer read.

        Call it as soon as the engine has taken them. The publisher's memory is bounded: a receiver that holds a version may be offered no
        other, and may finally be ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Free everything. May be called twice."""


class WeightTransfer(ABC):
    """A factory of the two ends of a transfer: the target of a ``WeightTransferSpec``. Made with its options, if the spec names a model.

    The same plugin with the same options creates both ends of a run, so only its own receiver must understand an address.
    """

    @abstractmethod
    def publisher(self, *, deadline: float, bucket_bytes: int, device: str = "cpu", on_failure: OnFailure | None = None) -> Publisher:
        """Return the trainer's end, in the process of rank 0.

        :param deadline: seconds that a transfer may stall.
        :param bucket_bytes: the argument for the source's ``buckets``; the other ranks take part with the same value.
        :param device: the device of the trainer's weights, ``cpu`` or ``cuda``; for transfers between devices.
        :param on_failure: see ``Publisher``.
        """

    @abstractmethod
    def receiver(self, *, name: str, address: Any, deadline: float, on_news: Callable[[], None]) -> Receiver:
        """Return a producer's end, in the producer's process.

        :param name: the name of the producer, for messages.
        :param address: the value of the publisher's ``address``, after pickling.
        :param deadline: seconds that a transfer may stall.
        :param on_news: see ``Receiver``.
        :raises WeightsError: the publisher cannot be reached.
        """


def _unheard(what: Any) -> None:
    """Ignore the failure; ``publish`` raises it again."""
