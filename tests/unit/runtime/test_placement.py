"""Colocated placement: a sequential feed sleeps between a batch and the next need."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from typing import Any

from rlcore.contracts.snapshots import BUCKET_BYTES, Snapshot
from rlcore.runtime.feed import SequentialFeed
from rlcore.testing.weights import publish
from rlcore.weights.memory import MemoryPublisher, MemoryReceiver


@dataclass
class Recorder:
    """The producer, the coordinator, the watch and the evaluator of a feed, as one list of what was asked in which order."""

    asked: list[str] = field(default_factory=list)
    version: int = -1
    asleep: bool = False
    finished: bool = False
    booking: str | None = None
    name: str = "p0"
    busy: int = 0
    idle: bool = True
    jobs: tuple[int, ...] = ()
    groups: int = 0

    def load(self, snapshot: Snapshot) -> None:
        self.asked.append(f"load {snapshot.version}")
        self.version, self.asleep = snapshot.version, False

    def sleep(self) -> None:
        self.asked.append("sleep")
        self.asleep = True

    def accept(self, jobs: list[Any]) -> None:
        assert not self.asleep
        self.asked.append("generate")

    def next_batch(self) -> Any:
        return None


class Order:
    """A batch without groups."""

    lease_ids: tuple[int, ...] = ()
    masked: frozenset[int] = frozenset()
    version = 0


def feed_of(recorder: Recorder, *, colocated: bool) -> SequentialFeed:
    waves = iter([None, Order(), None, Order(), None])

    class Coordinator:
        finished = False

        def next_batch(self) -> Any:
            return next(waves)

        def lease(self, *args: Any, **kwargs: Any) -> list[Any]:
            return []

        def deliver(self, deliveries: list[Any]) -> list[Any]:
            return []

    class Watch:
        def take_notes(self) -> list[str]:
            return []

        def check(self) -> None: ...

        def next_update(self) -> dict[str, float]:
            return {}

    class Evaluator:
        jobs: tuple[Any, ...] = ()

        def start(self, key: int) -> Any:
            return self

        def reports(self) -> list[Any]:
            return []

    publisher = MemoryPublisher(BUCKET_BYTES)
    ends = [publisher, MemoryReceiver("p", publisher, lambda: None)]
    parts: list[Any] = [Coordinator(), recorder, None, Evaluator(), *ends, 4, Watch(), lambda note: None]
    feed = SequentialFeed(*parts)
    feed.colocated = colocated
    return feed


def two_updates(recorder: Recorder, *, colocated: bool) -> list[str]:
    feed = feed_of(recorder, colocated=colocated)
    for version in (0, 1):
        feed.publish(partial(publish, snapshot=Snapshot.of(version, {})))
        if version == 1:
            feed.evaluate(1)
        assert feed.next_batch() is not None
        recorder.asked.append("train")
    feed.evaluate(2)  # the newest weights are version 1's: the engine slept, and gets them again
    return recorder.asked


def test_colocated_turns_are_taken_and_split_ones_are_not() -> None:
    turn = ["generate", "sleep", "train"]
    assert two_updates(Recorder(), colocated=True) == ["load 0", *turn, "load 1", "generate", *turn, "load 1", "generate"]
    assert "sleep" not in two_updates(Recorder(), colocated=False)
