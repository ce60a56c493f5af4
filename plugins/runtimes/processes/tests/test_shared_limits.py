"""The shared transport where a process has no file descriptor left, or its socket no room: it is told, or it waits and goes on."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator
from unittest import mock

import pytest
from kit_weights import BUCKET, PATIENCE, Ends, News, holds_its_version, snapshot_of, wait_for
from rlcore_plugin_processes import shared_readers
from rlcore_plugin_processes.shared import SharedPublisher
from rlcore_plugin_processes.shared_readers import Readers
from rlcore_plugin_processes.shared_receiver import SharedReceiver
from rlcore_plugin_processes.shared_wire import SharedAddress, SharedMemory, WireKind, WireMessage, listen, receive

from rlcore.api.weights import WeightsError
from rlcore.testing.weights import publish


@contextlib.contextmanager
def descriptors_left(number: int) -> Iterator[None]:
    """This process can open so many more."""
    free = [os.dup(0) for _ in range(number + 1)]  # always the lowest that is free
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free[-1], hard))
    try:
        for descriptor in free:
            os.close(descriptor)
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def connected() -> Iterator[tuple[SharedReceiver, socket.socket]]:
    """A receiver and the trainer's end of its connection, without a publisher."""
    listener, name = listen()
    receiver = SharedReceiver("p0", SharedAddress("here", os.getpid(), name), PATIENCE, News())
    channel, _ = listener.accept()
    yield receiver, channel
    for end in (receiver, channel, listener):
        end.close()


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Released whenever the publisher has tried to accept a connection."""
    made = threading.Semaphore(0)
    accept = Readers._accept

    def counted(readers: Readers) -> None:
        accept(readers)
        made.release()

    monkeypatch.setattr(Readers, "_accept", counted)
    return made


@pytest.fixture
def stranger() -> Iterator[socket.socket]:
    """What a receiver connects with."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as made:
        yield made


def connect(stranger: socket.socket, publisher: SharedPublisher) -> None:
    stranger.connect(f"\0{publisher.address().name}")


@pytest.mark.parametrize("left", [0, 1])  # one to receive, another to map
def test_a_buffer_for_which_the_receiver_has_no_descriptor_is_an_error_that_names_the_limit(
    connected: tuple[SharedReceiver, socket.socket], left: int
) -> None:
    receiver, channel = connected
    buffer = SharedMemory(1)
    with descriptors_left(left):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        begin = WireMessage(WireKind.BEGIN, 1, (7, buffer.size, 0, 0, 0, 7))
        socket.send_fds(channel, [begin.to_bytes()], [buffer.descriptor])
        receiver.on_news.wait()  # type: ignore[attr-defined]
    with pytest.raises(WeightsError, match=rf"producer p0: buffer 7 of the trainer \(process {os.getpid()} .* {limit} .*ulimit -n"):
        receiver.newer_than(-1)
    buffer.close()


def test_a_connection_without_a_descriptor_does_not_keep_the_publisher_busy(
    ends: Ends, tries: threading.Semaphore, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_readers, "PAUSE", PATIENCE)
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    assert tries.acquire(timeout=PATIENCE)

    def follow(version: int) -> None:
        publish(publisher, snapshot_of(version))
        assert holds_its_version(wait_for(receiver, version))
        receiver.release(version)

    for version in (0, 1, 2):  # both buffers are there
        follow(version)
    with descriptors_left(0):
        connect(stranger, publisher)
        assert tries.acquire(timeout=PATIENCE)
        for version in (3, 4, 5):
            follow(version)
    assert not tries.acquire(blocking=False)
    assert not ends.failures


def test_a_connection_that_waited_for_a_descriptor_is_accepted_when_there_is_one(
    ends: Ends, tries: threading.Semaphore, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_readers, "PAUSE", 0.01)
    publisher = ends.publisher()
    with descriptors_left(0):
        connect(stranger, publisher)
        assert tries.acquire(timeout=PATIENCE)
        assert tries.acquire(timeout=PATIENCE)
    stranger.send(WireMessage(WireKind.HELLO, text="late").to_bytes())
    with publisher._changed:
        assert publisher._changed.wait_for(publisher._readers.present, PATIENCE)


def test_an_error_of_the_thread_that_listens_is_told(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    publisher = ends.publisher()
    monkeypatch.setattr(Readers, "_accept", mock.Mock(side_effect=RuntimeError("no ear")))
    with contextlib.suppress(WeightsError):
        ends.receiver(publisher)
    assert ends.failed.wait(PATIENCE)
    with pytest.raises(WeightsError, match="no ear"):
        publish(publisher, snapshot_of(1))
    assert [str(error) for error in ends.failures] == ["no producer gets weights any more: RuntimeError: no ear"]


def test_a_receiver_that_reads_nothing_is_told_the_rest_when_it_reads(
    ends: Ends, stranger: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its socket has no room for so many buckets; nobody else waits for it, and nothing is said twice or left out."""
    publisher = ends.publisher()
    other = ends.receiver(publisher, "other")
    connect(stranger, publisher)
    stranger.send(WireMessage(WireKind.HELLO, text="reads-nothing").to_bytes())
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: len(publisher._readers.present()) == 2, PATIENCE)
    sizes = (BUCKET // 4,) * 2000
    publish(publisher, snapshot_of(1, sizes))
    assert holds_its_version(wait_for(other, 1))
    begin, *buckets = [heard(stranger) for _ in range(1 + len(sizes))]
    assert begin.kind is WireKind.BEGIN
    assert [bucket.numbers[0] for bucket in buckets] == list(range(len(sizes)))


def heard(channel: socket.socket) -> WireMessage:
    """The next message, waited for."""
    channel.settimeout(PATIENCE)
    data, descriptors, _, _ = socket.recv_fds(channel, 4096, 1)
    for descriptor in descriptors:
        os.close(descriptor)
    return WireMessage.from_bytes(data)


def test_what_the_other_end_said_is_heard_though_it_closed_with_messages_unread() -> None:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    ours.send(WireMessage(WireKind.VERIFIED, 1, (0,)).to_bytes())
    theirs.send(WireMessage(WireKind.GOODBYE).to_bytes())
    theirs.close()
    heard = receive(ours)
    assert heard is not None
    assert heard[0].kind is WireKind.GOODBYE
    assert receive(ours) is None
    ours.close()
