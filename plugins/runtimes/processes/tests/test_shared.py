"""The shared transport, both ends in one process: newest wins, nothing that is read is overwritten, and every end is clean."""

from __future__ import annotations

import os
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any
from unittest import mock

import numpy as np
import pytest
from kit_weights import PATIENCE, Ends, Gate, holds_its_version, mappings, snapshot_of, tensor, wait_for
from rlcore_plugin_processes import shared, shared_readers, shared_receiver, shared_wire
from rlcore_plugin_processes.shared_readers import Offer
from rlcore_plugin_processes.shared_receiver import SharedReceiver
from rlcore_plugin_processes.shared_wire import WireKind, WireMessage

from rlcore.api.weights import HostLayout, Probe, Snapshot, WeightsError
from rlcore.testing.weights import publish

LARGE = (3_000, 3, 4_000, 2_000)
# float32, so that the first three of four tensors have a bucket of their own.


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The sender stops before the second of many buckets."""
    made = Gate(HostLayout.seal)
    monkeypatch.setattr(HostLayout, "seal", lambda *given: made.seal(*given))
    return made


def test_two_receivers_get_it_whole_and_read_only(ends: Ends) -> None:
    publisher = ends.publisher()
    receivers = [ends.receiver(publisher, name) for name in ("p0", "p1")]
    probe = Probe(token_ids=np.array([1, 2], np.int32), logprobs=np.array([-1.5], np.float32), tolerance=0.1)
    brain = np.array([[16256, 49152], [0, 1]], np.uint16)
    publish(publisher, Snapshot.of(4, {"w": tensor(brain, "bfloat16"), "scale": tensor(np.array(2.5, np.float64), "float64")}, probe))
    for receiver in receivers:
        got = wait_for(receiver, 4)
        assert got.tensors["w"].dtype == "bfloat16"
        assert np.array_equal(got.tensors["w"].data, brain)
        assert got.tensors["scale"].data.shape == ()
        assert got.probe is not None
        assert got.probe.logprobs.tolist() == [-1.5]
        with pytest.raises(ValueError, match="read-only"):
            got.tensors["w"].data[0, 0] = 1
        assert receiver.newer_than(4) is None


def test_a_reader_that_goes_on_verifying_is_not_late(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its version is long, not itself slow: a newer one that is there does not start the clock before the last bucket."""
    verify = HostLayout.verify

    def slow(*given: Any) -> None:
        time.sleep(0.15)
        verify(*given)

    monkeypatch.setattr(HostLayout, "verify", slow)
    publisher = ends.publisher(deadline=1.5)
    receiver = ends.receiver(publisher)
    for version in (0, 1):
        publish(publisher, snapshot_of(version, (3_000,) * 14))
    assert holds_its_version(wait_for(receiver, 1))
    assert ends.drops == []


def test_versions_only_rise(ends: Ends) -> None:
    publisher = ends.publisher()
    publish(publisher, snapshot_of(2))
    for version in (1, 2):
        with pytest.raises(WeightsError, match="must rise"):
            publish(publisher, snapshot_of(version))


def test_a_late_receiver_gets_the_newest(ends: Ends) -> None:
    publisher = ends.publisher()
    first = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    wait_for(first, 1)
    assert holds_its_version(wait_for(ends.receiver(publisher, "late"), 1))


def test_a_receiver_that_comes_in_the_middle_gets_what_is_under_way(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    publish(publisher, snapshot_of(1, LARGE))
    assert gate.reached.wait(10)
    receiver = ends.receiver(publisher, "late")
    assert receiver.newer_than(-1) is None
    gate.open.set()
    assert holds_its_version(wait_for(receiver, 1))


def test_nothing_is_offered_before_the_last_message(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1, LARGE))
    assert gate.reached.wait(10)
    assert receiver.newer_than(-1) is None
    gate.open.set()
    assert holds_its_version(wait_for(receiver, 1))


def test_a_version_published_meanwhile_replaces_the_one_that_waits(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    with publisher._changed:  # on a busy machine all three versions could be over before the publisher has heard of the receiver
        assert publisher._changed.wait_for(publisher._readers.present, PATIENCE)
    seen = []
    with mock.patch.object(
        receiver, "_arrived", side_effect=lambda one: (seen.append(one.version), SharedReceiver._arrived(receiver, one))
    ):
        for version in (1, 2, 3):
            publish(publisher, snapshot_of(version, LARGE))
            assert gate.reached.wait(10)
        gate.open.set()
        assert holds_its_version(wait_for(receiver, 3))
    assert seen == [1, 3]


def test_what_is_read_is_not_overwritten_and_the_others_get_the_newest(ends: Ends) -> None:
    """One receiver keeps version 1 for good: the versions after it take turns in two other buffers."""
    publisher = ends.publisher()
    keeps, other = ends.receiver(publisher, "keeps"), ends.receiver(publisher, "other")
    publish(publisher, snapshot_of(1, LARGE))
    held = wait_for(keeps, 1)
    for version in range(2, 9):
        publish(publisher, snapshot_of(version, LARGE))
        assert holds_its_version(wait_for(other, version))
        other.release(version)
        assert len(publisher._buffers) <= 3
    assert holds_its_version(held)
    assert keeps.newer_than(1) is None
    keeps.release(1)
    assert wait_for(keeps, 2).version == 8


def test_a_reader_that_would_make_it_four_copies_is_ended_and_what_it_maps_stays(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_readers, "GRACE", 0.05)
    publisher = ends.publisher()
    first, second, third = (ends.receiver(publisher, name) for name in ("first", "second", "third"))
    publish(publisher, snapshot_of(1, LARGE))
    held = [wait_for(first, 1)]
    for one in (second, third):
        wait_for(one, 1)
        one.release(1)
    publish(publisher, snapshot_of(2, LARGE))
    held.append(wait_for(second, 2))
    wait_for(third, 2)
    third.release(2)
    for version in range(3, 9):
        publish(publisher, snapshot_of(version, LARGE))
        assert holds_its_version(wait_for(third, version))
        third.release(version)
        assert len(publisher._buffers) <= 3
    assert all(map(holds_its_version, held))
    assert [said.split(" kept an old version")[0] for said in ends.drops] == [f"producer first (process {os.getpid()})"]


def test_a_reader_that_keeps_an_old_version_beyond_the_deadline_is_ended(ends: Ends) -> None:
    publisher = ends.publisher(deadline=2.0)
    slow, other = ends.receiver(publisher, "slow"), ends.receiver(publisher, "other")
    publish(publisher, snapshot_of(1))
    held = wait_for(slow, 1)
    wait_for(other, 1)
    other.release(1)
    publish(publisher, snapshot_of(2))
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: ends.drops, PATIENCE)
    said = rf"producer slow \(process {os.getpid()}\) kept version 1 for 2 s after a newer one was available, so it was ended; .*-deadline"
    assert re.search(said, ends.drops[0])
    for version in (3, 4, 5):
        publish(publisher, snapshot_of(version))
        assert holds_its_version(wait_for(other, version))
        other.release(version)
    assert holds_its_version(held)
    assert ends.failures == []


def test_a_reader_may_keep_the_newest_version_as_long_as_it_likes(ends: Ends) -> None:
    publisher = ends.publisher(deadline=0.05)
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    held = wait_for(receiver, 1)
    receiver._thread.join(0.2)
    assert receiver._thread.is_alive()
    assert ends.drops == []
    assert holds_its_version(held)


def test_buckets_come_in_order_each_once(ends: Ends) -> None:
    """One that comes twice, and one that is left out, are named."""
    for index in (0, 2):
        publisher = ends.publisher()
        receiver = ends.receiver(publisher)
        publisher._readers.offer = partial(twisted, publisher._readers.offer, index)  # type: ignore[method-assign]
        publish(publisher, snapshot_of(4, LARGE))
        with pytest.raises(WeightsError, match=f"bucket {index} of version 4 arrived, but bucket 1 of version 4 was expected"):
            wait_for(receiver, 4)


def twisted(offer: Callable[[Offer], None], index: int, newest: Offer) -> None:
    """The second message of a bucket has another index."""
    if len(newest.sealed) == 2:
        right = newest.sealed[1]
        newest.sealed[1] = WireMessage(right.kind, right.version, (index, *right.numbers[1:]))
    offer(newest)


def test_what_nobody_asked_for_makes_room_by_itself(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_receiver, "UNREQUESTED_SECONDS", 0.01)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    for version in range(6):
        publish(publisher, snapshot_of(version))
        while receiver._newest is None or receiver._newest.version < version:
            receiver.on_news.wait()  # type: ignore[attr-defined]
    assert holds_its_version(wait_for(receiver, 5))


def test_a_released_version_is_not_offered_again(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    wait_for(receiver, 1)
    receiver.release(1)
    assert receiver.newer_than(-1) is None


def test_a_version_that_was_never_asked_for_cannot_be_released(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    receiver.release(1)
    assert holds_its_version(wait_for(receiver, 1))


def test_tensors_may_change_names_and_sizes(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    for version, sizes in enumerate([(10,), (5000, 20_000), (0, 3, 1), (100_000,), (), (7,)]):
        publish(publisher, snapshot_of(version, sizes))
        got = wait_for(receiver, version)
        assert holds_its_version(got)
        assert [one.data.size for one in got.tensors.values()] == list(sizes)
        assert len(receiver._maps) <= 2, "a buffer that is not used any more is still mapped"
        del got
        receiver.release(version)


def test_memory_is_not_taken_anew_for_versions_of_one_size(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    numbers = set()
    for version in range(8):
        publish(publisher, snapshot_of(version, LARGE))
        wait_for(receiver, version)
        receiver.release(version)
        numbers |= {buffer.number for buffer in publisher._buffers}
    assert len(numbers) == 2


def test_views_outlive_both_ends(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    got = wait_for(receiver, 1)
    receiver.close()
    publisher.close()
    assert holds_its_version(got)
    del got
    assert mappings() == 0


def test_closing_twice_and_in_the_middle_is_no_accident(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1, LARGE))
    assert gate.reached.wait(10)
    with publisher._changed:
        assert publisher._changed.wait_for(publisher._readers.present, PATIENCE)  # one that is not known yet is not told
        publisher._closed = True  # the writer must end at the gate, before close() waits for it
    gate.open.set()
    publisher.close()
    publisher.close()
    receiver._thread.join(60)
    assert not receiver._thread.is_alive()
    assert receiver.newer_than(-1) is None
    receiver.close()
    receiver.close()
    assert receiver.newer_than(-1) is None
    with pytest.raises(WeightsError, match="after the transport was closed"):
        publish(publisher, snapshot_of(2))


def test_a_publisher_that_closes_on_purpose_in_the_middle_is_no_failure_of_its_receivers(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    begun = threading.Event()
    with mock.patch.object(receiver, "_begin", side_effect=lambda *said: (SharedReceiver._begin(receiver, *said), begun.set())):
        publish(publisher, snapshot_of(1, LARGE))
        assert begun.wait(10)
    publisher._readers.close()
    gate.open.set()
    receiver._thread.join(60)
    assert not receiver._thread.is_alive()
    assert receiver.newer_than(-1) is None


def test_a_writer_that_stands_still_is_named_at_the_deadline(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher, deadline=0.2)
    publish(publisher, snapshot_of(7, LARGE))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    with pytest.raises(
        WeightsError, match=rf"p0: the trainer \(process {os.getpid()} .*0.2 s in the middle of version 7, with 1 buckets verified"
    ):
        receiver.newer_than(-1)
    gate.open.set()


def test_between_transfers_a_receiver_waits_as_long_as_it_takes(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose patience is short only then: a busy machine may be slow in the middle of a transfer."""
    patience = property(lambda self: 0.01 if self._arriving is None else PATIENCE, lambda self, seconds: None)
    monkeypatch.setattr(SharedReceiver, "_deadline", patience, raising=False)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    wait_for(receiver, 1)
    receiver._thread.join(0.1)
    assert receiver._thread.is_alive()
    publish(publisher, snapshot_of(2))
    receiver.release(1)
    assert holds_its_version(wait_for(receiver, 2))


def test_memory_that_cannot_be_had_is_said_by_publish_and_nothing_is_lost(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    held = wait_for(receiver, 1)
    monkeypatch.setattr(shared, "SharedMemory", mock.Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(WeightsError, match=r"version 2 needs 0 MB of shared memory, .*No space left"):
        publish(publisher, snapshot_of(2, LARGE))
    monkeypatch.undo()
    assert holds_its_version(held)
    publish(publisher, snapshot_of(2, LARGE))
    receiver.release(1)
    assert holds_its_version(wait_for(receiver, 2))


def test_an_error_of_the_sender_is_told(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostLayout, "seal", mock.Mock(side_effect=RuntimeError("out of luck")))
    publisher = ends.publisher()
    publish(publisher, snapshot_of(1))
    assert ends.failed.wait(10)
    with pytest.raises(WeightsError, match=r"version 1 could not be sent: RuntimeError: out of luck"):
        publish(publisher, snapshot_of(2))


def test_damage_on_the_way_is_an_error_that_names_tensor_and_producer(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    seal = HostLayout.seal

    def torn(layout: HostLayout, memory: np.ndarray, places: Sequence[int]) -> np.ndarray:
        sealed = seal(layout, memory, places)
        if layout.version == 1:
            memory[layout.offsets[1]] ^= 255
        return sealed

    monkeypatch.setattr(HostLayout, "seal", torn)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(WeightsError, match="producer p0: snapshot 1 arrived damaged: tensor 't1' does not have the checksum"):
            receiver.newer_than(-1)
    for version in (2, 3, 4, 5):  # a receiver that found damage keeps nobody waiting
        publish(publisher, snapshot_of(version))
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: publisher._newest is not None and publisher._newest.layout.version == 5, PATIENCE)
    assert holds_its_version(wait_for(ends.receiver(publisher, "p1"), 5))


def test_a_layout_that_changes_on_the_way_is_refused(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Still a layout, and every checksum fits: only its own digest tells."""
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    offer = publisher._readers.offer

    def damaging(newest: Offer) -> None:
        at, length = newest.begin.numbers[2:4]
        text = newest.memory.flat[at : at + length].tobytes()
        other = text.replace(b'"version": 1,', b'"version": 9,')
        assert len(other) == len(text) != 0
        newest.memory.flat[at : at + length] = np.frombuffer(other, np.uint8)
        offer(newest)

    monkeypatch.setattr(publisher._readers, "offer", damaging)
    publish(publisher, snapshot_of(1))
    with pytest.raises(WeightsError, match="producer p0: the list of tensors of version 1 arrived damaged"):
        wait_for(receiver, 1)


def test_checksums_that_change_on_the_way_are_told_from_damaged_tensors(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    offer = publisher._readers.offer

    def damaging(newest: Offer) -> None:
        if newest.sealed:
            assert publisher._newest is not None
            newest.memory.flat[publisher._newest.layout.size] ^= 1
        offer(newest)

    monkeypatch.setattr(publisher._readers, "offer", damaging)
    publish(publisher, snapshot_of(1))
    with pytest.raises(WeightsError, match="producer p0: the checksums of bucket 0 of version 1 arrived damaged"):
        wait_for(receiver, 1)


def test_nobody_listens_at_a_closed_publisher(ends: Ends) -> None:
    publisher = ends.publisher()
    address = publisher.address()
    publisher.close()
    with pytest.raises(WeightsError, match=rf"producer p9 cannot reach the trainer \(process {os.getpid()}"):
        SharedReceiver("p9", address, 1.0, lambda: None)


def test_another_user_is_refused(monkeypatch: pytest.MonkeyPatch, ends: Ends) -> None:
    publisher = ends.publisher()
    monkeypatch.setattr(shared_wire.os, "getuid", lambda: os.geteuid() + 1)
    with pytest.raises(WeightsError, match=r"at the other end of a transfer of weights of user"):
        ends.receiver(publisher)


def test_a_name_that_is_too_long_is_cut() -> None:
    message = WireMessage(WireKind.HELLO, text="ä" * 5000)
    assert WireMessage.from_bytes(message.to_bytes()).text == "ä" * 1000
    assert len(message.to_bytes()) < 4096


@pytest.mark.parametrize("data", [b"", b"short", bytes(200)])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WeightsError, match="not a message"):
        WireMessage.from_bytes(data)


def test_a_version_that_its_owner_had_no_time_to_ask_for_is_not_dropped(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_receiver, "UNREQUESTED_SECONDS", PATIENCE)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    publish(publisher, snapshot_of(2))
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: all(reader.news for reader in publisher._readers.present()), PATIENCE)
    assert wait_for(receiver, 1).version == 1
    receiver.release(1)
    assert wait_for(receiver, 2).version == 2


def test_a_process_that_cannot_be_seen_from_here_is_refused_at_both_ends(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a container with process numbers of its own the other end is 0, and signal 9 to 0 ends whoever sends it."""
    publisher = ends.publisher()
    monkeypatch.setattr(shared_wire, "_CREDENTIALS", mock.Mock(unpack=lambda found: (0, os.getuid(), 0), size=12))
    with pytest.raises(WeightsError, match=r"container with its own process ids, .* --transport object_store"):
        ends.receiver(publisher)
    assert publisher._readers.present() == []


def test_a_reader_that_was_ended_and_is_still_there_gets_no_more_time(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process may take long to go: the trainer waits for its memory no longer than the deadline, and says for whom."""
    monkeypatch.setattr(shared_readers, "GRACE", 0.05)
    monkeypatch.setattr(shared_readers.os, "getpid", lambda: -1)  # as if both readers were processes of their own,
    monkeypatch.setattr(shared_readers.signal, "pidfd_send_signal", lambda process, signal: None)  # which do not go
    publisher = ends.publisher(deadline=0.3)
    first, second = ends.receiver(publisher, "first"), ends.receiver(publisher, "second")
    publish(publisher, snapshot_of(1, LARGE))
    held = [wait_for(first, 1)]
    wait_for(second, 1)
    second.release(1)
    publish(publisher, snapshot_of(2, LARGE))
    held.append(wait_for(second, 2))
    publish(publisher, snapshot_of(3, LARGE))
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: publisher._newest is not None and publisher._newest.layout.version == 3, PATIENCE)
    with pytest.raises(WeightsError, match=r"producer first .* was killed, but its process still exists after 0.3 s"):
        publish(publisher, snapshot_of(4, LARGE))
    assert all(map(holds_its_version, held))
    assert len([said for said in ends.drops if said.startswith("producer first")]) == 1
