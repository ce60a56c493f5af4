"""Conformance suite for a transfer that engines join: both ends in one process, each engine in a thread."""

from __future__ import annotations

import pickle
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from rlcore.contracts.errors import GroupBrokenError, WeightsError
from rlcore.contracts.interfaces import InferenceBackend
from rlcore.contracts.snapshots import BUCKET_BYTES, RemoteSnapshot, Snapshot
from rlcore.contracts.specs import WeightTransferSpec
from rlcore.contracts.weight_transfer import Publisher, Receiver, WeightTransfer
from rlcore.roles.engine_update import update_engine
from rlcore.testing.weights import publish

__all__ = ["EngineTransferSuite", "JoiningProducer"]


class JoiningProducer:
    """An engine and its receiver, driven by one thread as a run drives them. ``took``: (version, epoch) of every update that it began;
    ``asks``: False while it is busy with something else."""

    def __init__(self, engine: InferenceBackend, receiver: Receiver, news: threading.Event, *, asks: bool = True) -> None:
        self.engine, self.receiver, self.asks = engine, receiver, asks
        self.version = -1
        self.took: list[tuple[int, int]] = []
        self.snapshots: list[Snapshot] = []
        self.failure: BaseException | None = None
        self._news, self._ends = news, False
        self._busy = threading.Lock()
        receiver.introduce(engine.describe())
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def score(self, token_ids: np.ndarray) -> np.ndarray:
        """Return the engine's scores, between two updates."""
        with self._busy:
            return self.engine.score(token_ids)

    def close(self) -> None:
        """Leave, as a producer that ends does."""
        self._ends = True
        self._news.set()
        self._thread.join(60.0)
        self.receiver.close()

    def _run(self) -> None:
        try:
            while not self._ends:
                self._news.wait(0.05)
                self._news.clear()
                if self.asks and (snapshot := self.receiver.newer_than(self.version)) is not None:
                    self._load(snapshot)
        except BaseException as error:
            self.failure = error

    def _load(self, snapshot: Snapshot) -> None:
        self.snapshots.append(snapshot)
        self.took.append((snapshot.version, getattr(snapshot, "epoch", -1)))
        with self._busy:
            try:
                self.version = update_engine(self.engine, snapshot)
            except GroupBrokenError:
                self.receiver.on_group_broken(getattr(snapshot, "epoch", -1))
                return
        self.receiver.release(snapshot.version)


class EngineTransferSuite(ABC):
    """The rules of a weight transfer that engines join, checked together with an engine.

    A subclass gives ``make``, ``make_engine``, ``snapshot`` and ``scores``. All engines and ends are closed after each test by
    ``teardown_method``.
    """

    spec: ClassVar[WeightTransferSpec | None] = None
    """The spec that the plugin registers, to compare with engines; None leaves that unchecked."""
    patience: ClassVar[float] = 60.0
    """Seconds after which a test gives up; no test that passes takes them."""
    tolerance: ClassVar[float] = 1e-4
    """Largest difference of two log probabilities of one token on one set of weights, by dtype."""
    sequence: ClassVar[tuple[int, ...]] = (1, 2, 3)
    """Tokens to score: two or more."""

    @abstractmethod
    def make(self) -> WeightTransfer:
        """Return a fresh transfer."""

    @abstractmethod
    def make_engine(self) -> InferenceBackend:
        """Return a fresh engine that joins it."""

    @abstractmethod
    def snapshot(self, version: int) -> Snapshot:
        """Return weights of that version, whole; clearly different ones for different versions."""

    @abstractmethod
    def scores(self, version: int) -> np.ndarray:
        """Return float32[T-1]: the log probabilities of ``sequence`` on ``snapshot(version)``."""

    # --- what the tests use ----------------------------------------------------------------------------------------------

    def setup_method(self) -> None:
        """Forget the test before."""
        self._transfer = self.make()
        self._ends: list[Callable[[], None]] = []

    def teardown_method(self) -> None:
        """Close everything, the last first."""
        for close in reversed(self._ends):
            close()

    def publisher(self) -> Publisher:
        """Return the trainer's end, closed after the test."""
        made = self._transfer.publisher(deadline=self.patience, bucket_bytes=BUCKET_BYTES)
        self._ends.append(made.close)
        return made

    def producer(self, publisher: Publisher, name: str = "p0", *, engine: InferenceBackend | None = None, asks: bool = True) -> Any:
        """Return a ``JoiningProducer``, with a new engine unless one is given; it is closed after the test."""
        if engine is None:
            engine = self.make_engine()
            self._ends.append(engine.close)
        news = threading.Event()
        address = pickle.loads(pickle.dumps(publisher.address()))
        receiver = self._transfer.receiver(name=name, address=address, deadline=self.patience, on_news=news.set)
        self._ends.append(receiver.close)
        made = JoiningProducer(engine, receiver, news, asks=asks)
        self._ends.append(made.close)
        return made

    def publish(self, publisher: Publisher, version: int) -> None:
        """Publish from a thread that drives no engine, as a trainer does."""
        publish(publisher, self.snapshot(version))

    def serves(self, version: int, *producers: Any) -> None:
        """Wait until each of them serves this version, and check its scores."""
        until = time.monotonic() + self.patience
        for producer in producers:
            while producer.version != version:
                name = producer.receiver.name
                assert producer.failure is None, f"{name} failed: {producer.failure!r}"
                late = f"{name} serves version {producer.version} {self.patience:g} s after version {version} was published"
                assert time.monotonic() < until, late
                time.sleep(0.005)
            off = float(np.abs(producer.score(np.array(self.sequence, np.int32)) - self.scores(version)).max())
            said = f"{producer.receiver.name} says that it serves version {version}"
            assert off <= self.tolerance, f"{said}, and its scores are off by {off:.2g}"

    @staticmethod
    def refused(call: Callable[[], object], what: str) -> None:
        """Assert that ``call`` raises WeightsError."""
        try:
            call()
        except WeightsError:
            return
        raise AssertionError(f"{what} is not a WeightsError")

    # --- the rules -------------------------------------------------------------------------------------------------------

    def test_an_engine_can_join_it(self) -> None:
        """The engine's ``capabilities.transfers`` names the ``way`` of the spec."""
        engine = self.make_engine()
        self._ends.append(engine.close)
        ways = engine.capabilities.transfers
        assert self.spec is None or self.spec.way in ways, f"the spec says way = {self.spec.way!r}, the engine takes weights by {set(ways)}"
        assert self.spec is None or self.spec.way != "host", "the spec says way = 'host'; WeightTransferSuite is for that"

    def test_every_engine_serves_what_was_published(self) -> None:
        """Each engine serves each published version, and members that stay keep their epoch."""
        publisher = self.publisher()
        producers = [self.producer(publisher, name) for name in ("p0", "p1")]
        for version in (1, 2, 3):
            self.publish(publisher, version)
            self.serves(version, *producers)
        for producer in producers:
            epochs = [epoch for _, epoch in producer.took]
            assert epochs == sorted(epochs), f"epochs go back: {epochs}"
            assert epochs[1] == epochs[2], f"the members stayed the same from version 2 to 3, and the epoch did not: {epochs}"

    def test_what_is_handed_out_can_travel_and_has_no_bytes(self) -> None:
        """``newer_than`` returns a ``RemoteSnapshot`` that can be pickled: manifest, probe and buckets without tensors."""
        publisher = self.publisher()
        producer = self.producer(publisher)
        sent = self.snapshot(4)
        publish(publisher, sent)
        self.serves(4, producer)
        got = producer.snapshots[-1]
        assert isinstance(got, RemoteSnapshot), f"newer_than returned a {type(got).__name__}"
        again = pickle.loads(pickle.dumps(got))
        assert again.manifest() == sent.manifest(), "the manifest is not that of the source"
        assert (again.probe is None) == (sent.probe is None), "the probe did not arrive, or was made up"
        assert not again.tensors, "the snapshot has tensors"
        parts = [(part.version, part.index, part.epoch, dict(part.tensors)) for part in again.buckets(BUCKET_BYTES)]
        assert parts == [(4, index, again.epoch, {}) for index in range(len(parts))], f"the buckets are {parts}"

    def test_a_late_engine_gets_the_newest_version(self) -> None:
        """A late engine gets the newest version under a new epoch, and engines that serve it are not disturbed."""
        publisher = self.publisher()
        early = self.producer(publisher, "early")
        self.publish(publisher, 7)
        self.serves(7, early)
        late = self.producer(publisher, "late")
        self.serves(7, late)
        assert late.took[-1][1] > early.took[-1][1], f"the epoch of a new member is {late.took[-1][1]}, {early.took[-1][1]} was before"
        assert [version for version, _ in early.took] == [7], f"an engine that served version 7 was given {early.took}"
        self.publish(publisher, 8)
        self.serves(8, early, late)

    def test_an_engine_that_comes_back_joins_again(self) -> None:
        """An engine that left and comes back joins a new group under a higher epoch."""
        publisher = self.publisher()
        first = self.producer(publisher, "p0")
        self.publish(publisher, 1)
        self.serves(1, first)
        first.close()
        second = self.producer(publisher, "p0.1", engine=first.engine)
        self.publish(publisher, 2)
        self.serves(2, second)
        assert second.took[-1][1] > first.took[-1][1], f"the group was built anew under epoch {second.took[-1][1]}, not a higher one"

    def test_the_others_go_on_without_one_that_left(self) -> None:
        """After a member has left, the others get the next version in a new group."""
        publisher = self.publisher()
        leaves, stays = self.producer(publisher, "leaves"), self.producer(publisher, "stays")
        for version in (1, 2):  # of the first one each may have been alone
            self.publish(publisher, version)
            self.serves(version, leaves, stays)
        leaves.close()
        publisher.left("leaves")
        self.publish(publisher, 3)
        self.serves(3, stays)
        assert stays.took[-1][1] > stays.took[1][1], f"a member left, and the epoch stayed {stays.took[-1][1]}"

    def test_an_engine_whose_group_broke_gets_the_version_again(self) -> None:
        """An engine that raises GroupBrokenError gets the version again under a higher epoch."""
        publisher = self.publisher()
        breaks, other = self.producer(publisher, "breaks"), self.producer(publisher, "other")
        for version, method in enumerate(("connect", "receive", "finish_update"), 1):
            if method == "connect":  # called for a new member
                breaks.close()
                publisher.left("breaks")
            self._break_once(breaks.engine, method)
            if method == "connect":
                breaks = self.producer(publisher, "breaks.1", engine=breaks.engine)
            before = len(breaks.took)
            self.publish(publisher, version)
            self.serves(version, breaks, other)
            epochs = [epoch for taken, epoch in breaks.took[before:] if taken == version]
            assert len(epochs) > 1, f"{method} raised GroupBrokenError, and version {version} was handed out once"
            assert epochs[-1] > epochs[0], f"{method} raised GroupBrokenError, and the epochs of version {version} were {epochs}"

    @staticmethod
    def _break_once(engine: InferenceBackend, method: str) -> None:
        """Make its next call of the method raise GroupBrokenError and do nothing else."""

        def broken(*_: Any) -> Any:
            delattr(engine, method)  # the class's own from here on
            raise GroupBrokenError(f"a link of the engine broke in {method}")

        setattr(engine, method, broken)

    def test_publish_never_waits_for_an_engine(self) -> None:
        """``publish`` and the other engines do not wait for an engine that asks for nothing; it gets the newest version later."""
        publisher = self.publisher()
        busy, other = self.producer(publisher, "busy", asks=False), self.producer(publisher, "other")
        for version in (1, 2, 3):
            began = time.monotonic()
            self.publish(publisher, version)
            assert time.monotonic() - began < self.patience / 2, f"publish of version {version} waited for an engine"
        self.serves(3, other)
        busy.asks = True
        self.serves(3, busy)
        for producer in (busy, other):
            versions = [version for version, _ in producer.took]
            assert versions == sorted(set(versions)), f"versions do not rise: {versions}"

    def test_weights_may_change_once_they_are_published(self) -> None:
        """The trainer can overwrite its weights when ``publish`` has returned."""
        publisher = self.publisher()
        producer = self.producer(publisher, asks=False)
        sent = self.snapshot(1)
        own = {name: replace(tensor, data=np.array(tensor.data)) for name, tensor in sent.tensors.items()}
        publish(publisher, Snapshot.of(1, own))
        for tensor in own.values():
            tensor.data[...] = 0
        producer.asks = True
        self.serves(1, producer)

    def test_versions_must_rise(self) -> None:
        """``publish`` refuses a version that is not above the last one."""
        publisher = self.publisher()
        self.publish(publisher, 2)
        for version in (1, 2):
            self.refused(lambda version=version: self.publish(publisher, version), f"version {version} after 2")  # type: ignore[misc]

    def test_both_ends_close_twice(self) -> None:
        """Both ends can be closed twice without waiting, and a closed publisher refuses a version."""
        publisher = self.publisher()
        producer = self.producer(publisher)
        self.publish(publisher, 1)
        self.serves(1, producer)
        for close in (producer.receiver.close, producer.receiver.close, publisher.close, publisher.close):
            began = time.monotonic()
            close()
            assert time.monotonic() - began < self.patience / 2, "close waits for the other end"
        self.refused(lambda: self.publish(publisher, 2), "publishing after close")
