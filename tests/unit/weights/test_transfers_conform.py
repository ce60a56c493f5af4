"""The transfer of one process keeps the rules that rlcore asks of strangers, and a transfer that breaks one fails the suite."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Any
from unittest import mock

import pytest

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import BUCKET_BYTES, Probe, Snapshot, WeightSource
from rlcore.contracts.weight_transfer import WeightTransfer
from rlcore.testing import WeightTransferSuite
from rlcore.weights.host_layout import HostLayout
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver, MemoryTransfer


class TestMemory(WeightTransferSuite):
    def make(self) -> WeightTransfer:
        return MemoryTransfer()


# --- broken ones ---------------------------------------------------------------------------------------------------------


class Waits(MemoryPublisher):
    """Publishes when the receivers have released what they hold."""

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        if version > 1:
            threading.Event().wait()
        super().publish(version, source, probe)


class FallsBack(MemoryPublisher):
    """Takes any version."""

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        self.newest = None
        super().publish(version, source, probe)


class Keeps(MemoryPublisher):
    """Sticks to the first version."""

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        first = self.newest
        super().publish(version, source, probe)
        self.newest = first or self.newest


class OpensAgain(MemoryPublisher):
    """Is never closed."""

    def close(self) -> None: ...


class TakesLater(MemoryPublisher):
    """Copies nothing: what it offers is the trainer's own memory."""

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        super().publish(version, source, probe)
        assert self.newest is not None
        layout, memory, _ = self.newest
        for bucket in source.buckets(BUCKET_BYTES):
            for tensor in bucket.values():
                tensor.data[...] = 9 if version == 1 else tensor.data
        layout.fill(source, memory, BUCKET_BYTES)


class TakesAnything(MemoryPublisher):
    """Publishes, whatever the source hands out."""

    def publish(self, version: int, source: WeightSource, probe: Probe | None = None) -> None:
        with suppress(WeightsError):
            super().publish(version, source, probe)


class VerifiesNothing(MemoryReceiver):
    """Hands out what it finds."""

    def newer_than(self, version: int) -> Snapshot | None:
        with mock.patch.object(HostLayout, "verify"):
            return super().newer_than(version)


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
    publisher: Callable[[int], MemoryPublisher], receiver: Callable[[str, Any, Callable[[], None]], MemoryReceiver]
) -> WeightTransferSuite:
    class Broken(WeightTransferSuite):
        patience = 0.2

        def make_publisher(self) -> MemoryPublisher:
            return publisher(BUCKET_BYTES)

        def make_receiver(self, name: str, address: Any, on_news: Callable[[], None]) -> MemoryReceiver:
            return receiver(name, address, on_news)

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
    "nothing is verified": (MemoryPublisher, VerifiesNothing, "test_damage_is_found_and_the_tensor_named"),
    "nothing is copied": (TakesLater, MemoryReceiver, "test_weights_may_change_once_they_are_published"),
    "anything is taken": (TakesAnything, MemoryReceiver, "test_what_the_source_hands_out_is_held_against_its_manifest"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_broken_transfer_fails(fault: str) -> None:
    publisher, receiver, test = FAULTS[fault]
    suite = suite_of(publisher, receiver)
    suite.setup_method()
    with pytest.raises((AssertionError, WeightsError)):
        getattr(suite, test)()
