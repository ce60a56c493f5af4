"""The shared transport, both ends in one process: newest wins, nothing that is read is overwritten, and every end is clean."""

from __future__ import annotations

import os
import socket
import threading
from unittest import mock

import numpy as np
import pytest
from kit_weights import PATIENCE, Ends, Gate, holds_its_version, mappings, snapshot_of, tensor, wait_for

from rlcore.contracts.errors import WeightsError
from rlcore.contracts.snapshots import Probe, Snapshot
from rlcore.weights import manifest, shared, shared_wire
from rlcore.weights.shared_receiver import SharedReceiver
from rlcore.weights.shared_wire import Line, WireKind, WireMessage, receive

LARGE = (40_000, 3, 20_000)


@pytest.fixture
def gate(monkeypatch: pytest.MonkeyPatch) -> Gate:
    """The writer stops after the first of many chunks."""
    made = Gate(shared.write_tensors)
    monkeypatch.setattr(manifest, "CHUNK", 10_000)
    monkeypatch.setattr(shared, "write_tensors", made)
    return made


def test_two_receivers_get_it_whole_and_read_only(ends: Ends) -> None:
    publisher = ends.publisher()
    receivers = [ends.receiver(publisher, name) for name in ("p0", "p1")]
    probe = Probe(token_ids=np.array([1, 2], np.int32), logprobs=np.array([-1.5], np.float32), tolerance=0.1)
    brain = np.array([[16256, 49152], [0, 1]], np.uint16)
    publisher.publish(
        Snapshot.sealed_late(4, {"w": tensor(brain, "bfloat16"), "scale": tensor(np.array(2.5, np.float64), "float64")}, probe)
    )
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


def test_versions_only_rise(ends: Ends) -> None:
    publisher = ends.publisher()
    publisher.publish(snapshot_of(2))
    for version in (1, 2):
        with pytest.raises(WeightsError, match="must rise"):
            publisher.publish(snapshot_of(version))


def test_a_late_receiver_gets_the_newest(ends: Ends) -> None:
    publisher = ends.publisher()
    first = ends.receiver(publisher)
    publisher.publish(snapshot_of(1))
    wait_for(first, 1)
    assert holds_its_version(wait_for(ends.receiver(publisher, "late"), 1))


def test_a_receiver_that_comes_in_the_middle_gets_what_is_under_way(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    publisher.publish(snapshot_of(1, LARGE))
    assert gate.reached.wait(10)
    receiver = ends.receiver(publisher, "late")
    assert receiver.newer_than(-1) is None
    gate.open.set()
    assert holds_its_version(wait_for(receiver, 1))


def test_nothing_is_offered_before_the_last_message(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1, LARGE))
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
            publisher.publish(snapshot_of(version, LARGE))
            assert gate.reached.wait(10)
        gate.open.set()
        assert holds_its_version(wait_for(receiver, 3))
    assert seen == [1, 3]


def test_what_is_read_is_not_overwritten_and_keeps_a_third_version_waiting(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    held = []
    for version in (1, 2):
        publisher.publish(snapshot_of(version))
        held.append(wait_for(receiver, version))
    publisher.publish(snapshot_of(3))
    other = ends.receiver(publisher, "p1")
    assert holds_its_version(wait_for(other, 2))
    assert all(holds_its_version(one) for one in held)
    assert receiver.newer_than(2) is None
    receiver.release(1)
    assert holds_its_version(wait_for(receiver, 3))
    assert holds_its_version(held[1])


def test_what_nobody_asked_for_makes_room_by_itself(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    for version in range(6):
        publisher.publish(snapshot_of(version))
        while receiver._newest is None or receiver._newest.version < version:
            receiver.on_news.wait()  # type: ignore[attr-defined]
    assert holds_its_version(wait_for(receiver, 5))


def test_a_released_version_is_not_offered_again(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1))
    wait_for(receiver, 1)
    receiver.release(1)
    assert receiver.newer_than(-1) is None


def test_a_version_that_was_never_asked_for_cannot_be_released(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    receiver.release(1)
    assert holds_its_version(wait_for(receiver, 1))


def test_tensors_may_change_names_and_sizes(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    for version, sizes in enumerate([(10,), (5000, 20_000), (0, 3, 1), (100_000,), (), (7,)]):
        publisher.publish(snapshot_of(version, sizes))
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
        publisher.publish(snapshot_of(version, LARGE))
        wait_for(receiver, version)
        receiver.release(version)
        numbers |= {buffer.number for buffer in publisher._slots if buffer is not None}
    assert len(numbers) == 2


def test_views_outlive_both_ends(ends: Ends) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1))
    got = wait_for(receiver, 1)
    receiver.close()
    publisher.close()
    assert holds_its_version(got)
    del got
    assert mappings() == 0


def test_closing_twice_and_in_the_middle_is_no_accident(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1, LARGE))
    assert gate.reached.wait(10)
    with publisher._changed:
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
        publisher.publish(snapshot_of(2))


def test_a_publisher_that_closes_on_purpose_in_the_middle_is_no_failure_of_its_receivers(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    begun = threading.Event()
    with mock.patch.object(receiver, "_begin", side_effect=lambda said: (SharedReceiver._begin(receiver, said), begun.set())):
        publisher.publish(snapshot_of(1, LARGE))
        assert begun.wait(10)
    publisher._readers.close()
    gate.open.set()
    receiver._thread.join(60)
    assert not receiver._thread.is_alive()
    assert receiver.newer_than(-1) is None


def test_a_receiver_that_keeps_both_buffers_is_named_at_the_deadline(ends: Ends) -> None:
    publisher = ends.publisher(deadline=0.2)
    receiver = ends.receiver(publisher, "slow")
    held = []
    for version in (1, 2):
        publisher.publish(snapshot_of(version))
        held.append(wait_for(receiver, version))
    publisher.publish(snapshot_of(3))
    assert ends.failed.wait(10)
    with pytest.raises(WeightsError, match=rf"version 3 waited 0.2 s .* producer slow \(process {os.getpid()}\) since version 1"):
        publisher.publish(snapshot_of(4))
    assert len(ends.failures) == 1


def test_a_writer_that_stands_still_is_named_at_the_deadline(ends: Ends, gate: Gate) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher, deadline=0.2)
    publisher.publish(snapshot_of(7, LARGE))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    with pytest.raises(
        WeightsError, match=rf"p0: the trainer \(process {os.getpid()} .*0.2 s in the middle of version 7, at tensor 't0', 0.0 of"
    ):
        receiver.newer_than(-1)
    gate.open.set()


def test_between_transfers_a_receiver_waits_as_long_as_it_takes(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whose patience is short only then: a busy machine may be slow in the middle of a transfer."""
    patience = property(lambda self: 0.01 if self._follower is None else PATIENCE, lambda self, seconds: None)
    monkeypatch.setattr(SharedReceiver, "_deadline", patience, raising=False)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1))
    wait_for(receiver, 1)
    receiver._thread.join(0.1)
    assert receiver._thread.is_alive()
    publisher.publish(snapshot_of(2))
    assert holds_its_version(wait_for(receiver, 2))


def test_an_error_of_the_writer_is_told(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared, "Buffer", mock.Mock(side_effect=OSError(28, "No space left on device")))
    publisher = ends.publisher()
    publisher.publish(snapshot_of(1))
    assert ends.failed.wait(10)
    with pytest.raises(WeightsError, match=r"version 1 could not be sent: OSError: .*No space left"):
        publisher.publish(snapshot_of(2))


@pytest.mark.parametrize("late", [True, False])
def test_damage_on_the_way_is_an_error_that_names_tensor_and_producer(ends: Ends, monkeypatch: pytest.MonkeyPatch, late: bool) -> None:
    def torn(snapshot: Snapshot, made: manifest.Manifest, flat: np.ndarray, checksums: np.ndarray) -> object:
        yield from manifest.write_tensors(snapshot, made, flat, checksums)
        flat[made.places[1].offset] ^= 255

    monkeypatch.setattr(shared, "write_tensors", torn)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1, late=late))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    for _ in range(2):
        with pytest.raises(WeightsError, match="producer p0: snapshot 1 arrived damaged: tensor 't1' has another checksum"):
            receiver.newer_than(-1)
    monkeypatch.undo()
    for version in (2, 3, 4, 5):  # who found damage keeps nobody waiting
        publisher.publish(snapshot_of(version))
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: publisher._newest is not None and publisher._newest.manifest.version == 5, 10)
    assert holds_its_version(wait_for(ends.receiver(publisher, "p1"), 5))


def test_a_list_of_tensors_that_changes_on_the_way_is_refused(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """Still a list, and every checksum fits: only its own digest tells."""
    prepare = shared.SharedPublisher._prepare

    def damaged(self: shared.SharedPublisher, snapshot: Snapshot) -> object:
        transfer = prepare(self, snapshot)
        text = transfer.text.replace(b'"version": 1,', b'"version": 9,')
        assert len(text) == len(transfer.text) != 0
        assert text != transfer.text
        transfer.buffer.flat[transfer.manifest_at : transfer.manifest_at + len(text)] = np.frombuffer(text, np.uint8)
        return transfer

    monkeypatch.setattr(shared.SharedPublisher, "_prepare", damaged)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publisher.publish(snapshot_of(1))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    with pytest.raises(WeightsError, match="producer p0: the list of tensors of snapshot 1 arrived damaged"):
        receiver.newer_than(-1)


def test_checksums_that_change_on_the_way_are_told_from_damaged_tensors(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    tell = publisher._readers.tell

    def damaging(message: WireMessage, version: int) -> None:
        if message.kind is WireKind.END:
            assert publisher._newest is not None
            publisher._newest.checksums()[0] ^= np.uint64(1)
        tell(message, version)

    monkeypatch.setattr(publisher._readers, "tell", damaging)
    publisher.publish(snapshot_of(1))
    receiver.on_news.wait()  # type: ignore[attr-defined]
    with pytest.raises(WeightsError, match="producer p0: the checksums of snapshot 1 arrived damaged"):
        receiver.newer_than(-1)


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


def test_a_line_without_room_keeps_the_newest_progress_and_the_order() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line = Line(here)
    there.setblocking(False)
    sent = 0
    while not line.full:
        sent += 1
        line.say(WireMessage(WireKind.RELEASE, sent))
    for reached in (1, 2, 3):
        line.say(WireMessage(WireKind.PROGRESS, 9, reached))
    line.say(WireMessage(WireKind.END, 9))
    heard = []
    while line.full or heard[-1:] != [(WireKind.END, 9, 0)]:
        message, _ = receive(there) or (None, None)
        assert message is not None
        heard.append((message.kind, message.version, message.a))
        line.flush()
    assert heard == [*((WireKind.RELEASE, number, 0) for number in range(1, sent + 1)), (WireKind.PROGRESS, 9, 3), (WireKind.END, 9, 0)]
    line.close()
    there.close()


def test_a_name_that_is_too_long_is_cut() -> None:
    message = WireMessage(WireKind.HELLO, text="ä" * 5000)
    assert len(message.to_bytes()) == 1024
    assert WireMessage.from_bytes(message.to_bytes()).text.startswith("ä" * 490)


@pytest.mark.parametrize("data", [b"", b"short", bytes(200)])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(WeightsError, match="no message"):
        WireMessage.from_bytes(data)
