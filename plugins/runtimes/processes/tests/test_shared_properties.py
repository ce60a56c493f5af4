"""Whatever happens in whatever order: what is handed out is whole, stays so until it is released, and the newest arrives in the end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kit_weights import Ends, holds_its_version, mappings, snapshot_of, wait_for
from rlcore_plugin_processes import shared_readers, shared_receiver
from rlcore_plugin_processes.shared_receiver import SharedReceiver

from rlcore.api.weights import Snapshot
from rlcore.testing.weights import publish

SIZES = st.lists(st.sampled_from([0, 1, 50, 400]), max_size=4).map(tuple)
STEP = st.one_of(
    st.tuples(st.just("publish"), SIZES),
    st.tuples(st.just("connect"), st.just(0)),
    st.tuples(st.sampled_from(["take", "release", "look", "die", "close"]), st.integers(0, 3)),
)


@dataclass
class Side:
    """A receiver, what it was handed out and has not released, and the newest version that it was offered."""

    receiver: SharedReceiver
    held: dict[int, Snapshot] = field(default_factory=dict)
    newest: int = -1

    def take(self) -> None:
        got = self.receiver.newer_than(self.newest)
        if got is not None:
            assert got.version > self.newest
            assert holds_its_version(got)
            self.newest = got.version
            self.held[got.version] = got

    def release(self) -> None:
        self.receiver.release(self.newest)
        self.held.clear()

    def end(self, *, die: bool) -> None:
        if die:
            self.receiver._interrupt()  # what the publisher sees of a process that was killed
        else:
            self.receiver.close()


class World:
    """One publisher, up to four receivers."""

    def __init__(self, ends: Ends) -> None:
        self.ends = ends
        self.publisher = ends.publisher()
        self.sides: list[Side] = []
        self.published = -1

    def do(self, what: str, argument: object) -> None:
        if what == "publish":
            assert isinstance(argument, tuple)
            self.published += 1
            publish(self.publisher, snapshot_of(self.published, argument))
        elif what == "connect" and len(self.sides) < 4:
            self.sides.append(Side(self.ends.receiver(self.publisher, f"p{len(self.sides)}")))
        elif self.sides and isinstance(argument, int):
            side = self.sides[argument % len(self.sides)]
            if what in ("die", "close"):
                self.sides.remove(side)
                side.end(die=what == "die")
            elif what == "take":
                side.take()
            elif what == "release":
                side.release()
        self.check()

    def check(self) -> None:
        for side in self.sides:
            assert all(holds_its_version(one) and one.version == version for version, one in side.held.items())

    def settle(self) -> None:
        """Once everything is let go of, everybody who is left gets the newest; who made it four copies was ended."""
        for side in self.sides:
            side.release()
        if self.ends.drops:
            for side in self.sides:
                side.receiver._thread.join(0.1)
        for side in self.sides:
            while side.newest < self.published and side.receiver._thread.is_alive():
                got = wait_for(side.receiver, side.newest + 1)
                assert holds_its_version(got)
                side.newest = got.version
                side.receiver.release(got.version)
        assert self.ends.failures == []


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_left() -> Iterator[None]:
    # A version that nobody asked for is dropped at once, and one that makes it four copies soon.
    with mock.patch.object(shared_receiver, "UNREQUESTED_SECONDS", 0.0), mock.patch.object(shared_readers, "GRACE", 0.05):
        yield
    assert mappings() == 0, "a buffer is left"


@settings(max_examples=150, deadline=None)
@given(st.lists(STEP, max_size=40))
def test_whole_verified_and_newest(steps: list[tuple[str, object]]) -> None:
    ends = Ends()
    try:
        world = World(ends)
        for what, argument in steps:
            world.do(what, argument)
        world.settle()
    finally:
        ends.close()
