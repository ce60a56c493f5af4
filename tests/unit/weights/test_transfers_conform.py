"""The transfers of one host keep the rules that rlcore asks of strangers, and a transfer that breaks one fails the suite."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Snapshot
from rlcore.contracts.transport import WeightTransfer
from rlcore.testing import WeightTransferSuite
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver, MemoryTransfer
from rlcore.weights.shared import SharedTransfer


class TestMemory(WeightTransferSuite):
    verifies = False

    def make(self) -> WeightTransfer:
        return MemoryTransfer()


class TestShared(WeightTransferSuite):
    def make(self) -> WeightTransfer:
        return SharedTransfer()


# --- broken ones ---------------------------------------------------------------------------------------------------------


class Waits(MemoryPublisher):
    """Publishes when the receivers have released what they hold."""

    def publish(self, snapshot: Snapshot) -> None:
        if snapshot.version > 1:
            threading.Event().wait()
        super().publish(snapshot)


class FallsBack(MemoryPublisher):
    """Takes any version."""

    def publish(self, snapshot: Snapshot) -> None:
        self.newest = None
        super().publish(snapshot)


class Keeps(MemoryPublisher):
    """Sticks to the first version."""

    def publish(self, snapshot: Snapshot) -> None:
        first = self.newest
        super().publish(snapshot)
        self.newest = first or snapshot


class OpensAgain(MemoryPublisher):
    """Is never closed."""

    def close(self) -> None: ...


class Loses(MemoryReceiver):
    """Leaves a tensor out."""

    def newer_than(self, version: int) -> Snapshot | None:
        got = super().newer_than(version)
        return got and replace(got, tensors={name: tensor for name, tensor in got.tensors.items() if name != "scale"})


class Offers(MemoryReceiver):
    """Offers what was released."""

    def release(self, version: int) -> None: ...


class TellsNobody(MemoryReceiver):
    """Tells nobody."""

    def __init__(self, name: str, address: MemoryPublisher, on_news: Callable[[], None]) -> None:
        super().__init__(name, address, lambda: None)


class ClosesOnce(MemoryReceiver):
    """Fails at the second close."""

    closed = False

    def close(self) -> None:
        if self.closed:
            raise WeightsError("closed twice")
        self.closed = True


def suite_of(
    publisher: Callable[[], MemoryPublisher], receiver: Callable[[str, Any, Callable[[], None]], MemoryReceiver], *, verifies: bool
) -> WeightTransferSuite:
    class Broken(WeightTransferSuite):
        patience = 0.2

        def make_publisher(self) -> MemoryPublisher:
            return publisher()

        def make_receiver(self, name: str, address: Any, on_news: Callable[[], None]) -> MemoryReceiver:
            return receiver(name, address, on_news)

    Broken.verifies = verifies
    return Broken()


FAULTS: dict[str, tuple[Any, Any, str]] = {
    "publish waits": (Waits, MemoryReceiver, "test_publish_never_waits_for_a_receiver"),
    "versions may fall": (FallsBack, MemoryReceiver, "test_versions_must_rise"),
    "the first wins": (Keeps, MemoryReceiver, "test_the_newest_wins"),
    "publishes after close": (OpensAgain, MemoryReceiver, "test_both_ends_close_twice"),
    "a tensor is lost": (MemoryPublisher, Loses, "test_a_snapshot_arrives_whole"),
    "what was released is offered": (MemoryPublisher, Offers, "test_what_was_released_is_not_offered_again"),
    "nobody is told": (MemoryPublisher, TellsNobody, "test_the_owner_is_told"),
    "a second close fails": (MemoryPublisher, ClosesOnce, "test_both_ends_close_twice"),
    "nothing is verified": (MemoryPublisher, MemoryReceiver, "test_damage_is_found_and_the_tensor_named"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_transfer_fails(fault: str) -> None:
    publisher, receiver, test = FAULTS[fault]
    suite = suite_of(publisher, receiver, verifies=fault == "nothing is verified")
    suite.setup_method()
    with pytest.raises((AssertionError, WeightsError)):
        getattr(suite, test)()
