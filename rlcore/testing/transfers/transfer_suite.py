"""Conformance suite for weight transfers."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any

import numpy as np

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import BUCKET_BYTES, Probe, Snapshot, Tensor
from rlcore.contracts.weight_transfer import Publisher, Receiver, WeightTransfer
from rlcore.testing.weights import HostSource, mis_sealing, publish

__all__ = ["WeightTransferSuite"]


class WrongSource(HostSource):
    """Hands out ``instead`` in the place of one tensor of its manifest; None: nothing."""

    def __init__(self, tensors: Mapping[str, Tensor], name: str, instead: Tensor | None) -> None:
        super().__init__(tensors)
        self.name, self.instead = name, instead

    def buckets(self, max_bytes: int) -> Iterator[Mapping[str, Tensor]]:
        """Yield all at once."""
        others = {name: tensor for name, tensor in self.tensors.items() if name != self.name}
        yield others if self.instead is None else {**others, self.name: self.instead}


class WeightTransferSuite:
    """The rules of a weight transfer from a trainer to producers.

    A subclass defines how to make the transfer. ``make_publisher`` and ``make_receiver`` are for ends in processes of their own. All that
    they return is closed after each test by ``teardown_method``.
    """

    patience = 60.0
    """Seconds after which a test gives up; no test that passes takes them."""

    def make(self) -> WeightTransfer:
        """Return a fresh transfer."""
        raise NotImplementedError

    def make_publisher(self) -> Publisher:
        """Return the trainer's end. Called once a test."""
        self._transfer = self.make()
        return self._transfer.publisher(deadline=self.patience, bucket_bytes=BUCKET_BYTES)

    def make_receiver(self, name: str, address: Any, on_news: Callable[[], None]) -> Receiver:
        """Return a producer's end."""
        return self._transfer.receiver(name=name, address=address, deadline=self.patience, on_news=on_news)

    # --- what the tests use ----------------------------------------------------------------------------------------------

    def setup_method(self) -> None:
        """Forget the test before."""
        self._ends: list[Publisher | Receiver] = []
        self._news: dict[str, threading.Event] = {}

    def teardown_method(self) -> None:
        """Close everything, receivers first."""
        for end in reversed(self._ends):
            end.close()

    def publisher(self) -> Publisher:
        """Return the trainer's end, closed after the test."""
        made = self.make_publisher()
        self._ends.append(made)
        return made

    def receiver(self, publisher: Publisher, name: str = "p0") -> Receiver:
        """Return a producer's end, closed after the test."""
        news = self._news[name] = threading.Event()
        made = self.make_receiver(name, publisher.address(), news.set)
        self._ends.append(made)
        return made

    @staticmethod
    def snapshot(version: int) -> Snapshot:
        """Return three tensors whose every value is the version: float32, bfloat16 (as uint16), and a scalar float64."""
        arrays = {
            "body": Tensor(dtype="float32", shape=(30, 10), data=np.full((30, 10), version, np.float32)),
            "head": Tensor(dtype="bfloat16", shape=(70,), data=np.full(70, version, np.uint16)),
            "scale": Tensor(dtype="float64", shape=(), data=np.array(version, np.float64)),
        }
        probe = Probe(token_ids=np.array([1, 2, 3], np.int32), logprobs=np.array([-1.5, -0.25], np.float32), tolerance=0.1)
        return Snapshot.of(version, arrays, probe)

    def wait_for(self, receiver: Receiver, version: int) -> Snapshot:
        """Wait for this version or a newer one, and return it."""
        news = self._news[receiver.name]
        while (got := receiver.newer_than(version - 1)) is None:
            assert news.wait(self.patience), f"{receiver.name} was not told of version {version} within {self.patience:g} s"
            news.clear()
        return got

    def in_time(self, what: str, call: Callable[[], object]) -> None:
        """Assert that ``call`` returns by itself."""
        raised: list[BaseException] = []

        def run() -> None:
            try:
                call()
            except BaseException as error:
                raised.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        thread.join(self.patience)
        assert not thread.is_alive(), f"{what} did not return within {self.patience:g} s"
        if raised:
            raise raised[0]

    @staticmethod
    def assert_whole(snapshot: Snapshot) -> None:
        """Assert that each value is the version's and each checksum the sender's."""
        snapshot.verify()
        wrong = [name for name, tensor in snapshot.tensors.items() if not (tensor.data == snapshot.version).all()]
        assert not wrong, f"version {snapshot.version} holds other values in {wrong}"

    # --- the rules -------------------------------------------------------------------------------------------------------

    def test_a_snapshot_arrives_whole(self) -> None:
        """Names, dtypes, shapes, values, checksums and probe arrive as they were published."""
        publisher = self.publisher()
        receiver = self.receiver(publisher)
        sent = self.snapshot(4)
        publish(publisher, sent)
        got = self.wait_for(receiver, 4)
        assert got.version == 4
        assert dict(got.checksums) == dict(sent.checksums), "the checksums are not the sender's"
        assert [(n, t.dtype, tuple(t.shape)) for n, t in got.tensors.items()] == [(n, t.dtype, t.shape) for n, t in sent.tensors.items()]
        self.assert_whole(got)
        assert got.probe is not None, "the probe did not arrive"
        assert sent.probe is not None
        assert got.probe.token_ids.tolist() == sent.probe.token_ids.tolist()
        assert got.probe.logprobs.tolist() == sent.probe.logprobs.tolist()
        assert receiver.newer_than(4) is None, "there is a newer version than the newest"

    def test_a_snapshot_without_a_probe_has_none(self) -> None:
        """A snapshot that was published without a probe has none."""
        publisher = self.publisher()
        receiver = self.receiver(publisher)
        publish(publisher, replace(self.snapshot(1), probe=None))
        assert self.wait_for(receiver, 1).probe is None

    def test_nothing_is_there_before_the_first_version(self) -> None:
        """``newer_than`` returns None before the first version, and does not wait."""
        receiver = self.receiver(self.publisher())
        self.in_time("newer_than", lambda: receiver.newer_than(-1))
        assert receiver.newer_than(-1) is None

    def test_the_owner_is_told(self) -> None:
        """``on_news`` is called when there is a version to take, so that nothing polls."""
        publisher = self.publisher()
        self.receiver(publisher)
        publish(publisher, self.snapshot(1))
        assert self._news["p0"].wait(self.patience), f"on_news was not called within {self.patience:g} s"

    def test_versions_must_rise(self) -> None:
        """``publish`` refuses a version that is not above the last one."""
        publisher = self.publisher()
        publish(publisher, self.snapshot(2))
        for version in (1, 2):
            self.assert_refused(lambda version=version: publish(publisher, self.snapshot(version)), "2")  # type: ignore[misc]

    @staticmethod
    def assert_refused(call: Callable[[], object], named: str) -> None:
        """Assert that ``call`` raises WeightsError, and that its sentence holds ``named``."""
        said = ""
        try:
            call()
        except WeightsError as error:
            said = str(error)
        assert said, f"no WeightsError was raised; one must be, and name {named}"
        assert named in said, f"the error does not name {named}: {said}"

    def test_the_newest_wins(self) -> None:
        """Received versions only rise, versions in between can be left out, and the last version comes."""
        publisher = self.publisher()
        receiver = self.receiver(publisher)
        for version in range(1, 6):
            publish(publisher, self.snapshot(version))
        seen = [0]
        while seen[-1] < 5:
            got = self.wait_for(receiver, seen[-1] + 1)
            assert got.version > seen[-1], f"after version {seen[-1]} came {got.version}"
            self.assert_whole(got)
            seen.append(got.version)
            del got
            receiver.release(seen[-1])
        assert receiver.newer_than(5) is None

    def test_two_receivers_get_every_tensor(self) -> None:
        """Two receivers each get every tensor."""
        publisher = self.publisher()
        receivers = [self.receiver(publisher, name) for name in ("p0", "p1")]
        for version in (1, 2):
            publish(publisher, self.snapshot(version))
            for receiver in receivers:
                self.assert_whole(self.wait_for(receiver, version))
                receiver.release(version)

    def test_a_late_receiver_gets_the_newest(self) -> None:
        """A receiver that starts late gets the newest version at once, not the next one."""
        publisher = self.publisher()
        early = self.receiver(publisher, "early")
        publish(publisher, self.snapshot(1))
        self.wait_for(early, 1)
        late = self.receiver(publisher, "late")
        assert self.wait_for(late, 1).version == 1

    def test_publish_never_waits_for_a_receiver(self) -> None:
        """``publish`` does not wait for a receiver that asks for nothing, or that keeps a version."""
        publisher = self.publisher()
        keeps, _ = self.receiver(publisher, "keeps"), self.receiver(publisher, "never-asks")
        publish(publisher, self.snapshot(1))
        held = self.wait_for(keeps, 1)
        for version in (2, 3, 4):
            self.in_time(f"publish of version {version}", lambda version=version: publish(publisher, self.snapshot(version)))  # type: ignore[misc]
        self.assert_whole(held)
        del held
        keeps.release(1)

    def test_a_receiver_that_stops_does_not_stop_the_others(self) -> None:
        """A receiver that never releases a version can still read it, and the others get the next version."""
        publisher = self.publisher()
        stopped, other = self.receiver(publisher, "stopped"), self.receiver(publisher, "other")
        publish(publisher, self.snapshot(1))
        held = self.wait_for(stopped, 1)
        self.wait_for(other, 1)
        other.release(1)
        publish(publisher, self.snapshot(2))
        self.assert_whole(self.wait_for(other, 2))
        self.assert_whole(held)

    def test_a_receiver_that_is_closed_is_not_waited_for(self) -> None:
        """After a receiver has closed, the others get the next version."""
        publisher = self.publisher()
        leaves, stays = self.receiver(publisher, "leaves"), self.receiver(publisher, "stays")
        publish(publisher, self.snapshot(1))
        self.wait_for(leaves, 1)
        self.wait_for(stays, 1)
        leaves.close()
        stays.release(1)
        publish(publisher, self.snapshot(2))
        self.assert_whole(self.wait_for(stays, 2))

    def test_what_was_released_is_not_offered_again(self) -> None:
        """A released version is not offered again, since its memory may be overwritten; the next version is offered."""
        publisher = self.publisher()
        receiver = self.receiver(publisher)
        publish(publisher, self.snapshot(1))
        self.wait_for(receiver, 1)
        receiver.release(1)
        assert receiver.newer_than(0) is None, "version 1 was released and is offered again"
        publish(publisher, self.snapshot(2))
        assert self.wait_for(receiver, 1).version == 2

    def mis_sealing(self, publisher: Publisher, name: str) -> AbstractContextManager[None]:
        """Give this tensor a wrong checksum at its sender, within the block. A transfer that does not use ``HostLayout.seal`` overrides
        this."""
        return mis_sealing(name)

    def test_damage_is_found_and_the_tensor_named(self) -> None:
        """A tensor whose checksum is not its sender's raises a WeightsError that names it."""
        publisher = self.publisher()
        receiver = self.receiver(publisher, "p7")
        with self.mis_sealing(publisher, "head"):
            publish(publisher, self.snapshot(1))
            self.assert_refused(lambda: self.wait_for(receiver, 1), "'head'")

    def test_what_the_source_hands_out_is_held_against_its_manifest(self) -> None:
        """``publish`` refuses a tensor that is missing or of another shape than the manifest says, and publishes nothing."""
        publisher = self.publisher()
        tensors = dict(self.snapshot(1).tensors)
        for name, wrong in (("head", None), ("body", Tensor(dtype="float32", shape=(10, 30), data=np.zeros((10, 30), np.float32)))):
            source = WrongSource(tensors, name, wrong)
            self.assert_refused(lambda source=source: publisher.publish(1, source), f"{name!r}")  # type: ignore[misc]
        publish(publisher, self.snapshot(1))

    def test_weights_may_change_once_they_are_published(self) -> None:
        """The trainer can overwrite its weights when ``publish`` has returned."""
        publisher = self.publisher()
        receiver = self.receiver(publisher)
        sent = self.snapshot(1)
        publish(publisher, sent)
        for tensor in sent.tensors.values():
            tensor.data[...] = 9
        self.assert_whole(self.wait_for(receiver, 1))

    def test_both_ends_close_twice(self) -> None:
        """Both ends can be closed twice, and a closed publisher refuses a version."""
        publisher = self.publisher()
        receiver = self.receiver(publisher)
        publish(publisher, self.snapshot(1))
        self.wait_for(receiver, 1)
        for end in (receiver, receiver, publisher, publisher):
            self.in_time("close", end.close)
        self.assert_refused(lambda: publish(publisher, self.snapshot(2)), "2")
