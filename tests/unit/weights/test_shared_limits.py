"""The shared transport where a process has no file descriptor left, or its socket no room: it is told, or it waits and goes on."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from collections.abc import Iterator

import pytest
from kit_weights import PATIENCE, Ends, News, holds_its_version, snapshot_of, wait_for

from rlcore.contracts.errors import WeightsError
from rlcore.weights import shared_readers
from rlcore.weights.shared import SharedPublisher
from rlcore.weights.shared_readers import Readers
from rlcore.weights.shared_receiver import SharedReceiver
from rlcore.weights.shared_wire import Buffer, Line, SharedAddress, WireKind, WireMessage, listen, receive


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
    buffer = Buffer(1)
    with descriptors_left(left):
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        Line(channel).say(WireMessage(WireKind.ATTACH, 7, buffer.size), buffer.descriptor)
        Line(channel).say(WireMessage(WireKind.BEGIN, 1, 7))
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
        publisher.publish(snapshot_of(version))
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


def test_an_error_of_the_thread_that_listens_is_told(ends: Ends, tries: threading.Semaphore, stranger: socket.socket) -> None:
    publisher = ends.publisher()
    publisher.publish(snapshot_of(1))
    connect(stranger, publisher)
    assert tries.acquire(timeout=PATIENCE)
    with publisher._changed:
        assert publisher._changed.wait_for(lambda: publisher._newest is not None, PATIENCE)
        (reader,) = publisher._readers._all.values()
        while not reader.line.full:
            reader.line.say(WireMessage(WireKind.DETACH))
    with descriptors_left(0):
        stranger.send(WireMessage(WireKind.HELLO, text="p0").to_bytes())  # its buffer has to be kept, for which there is no descriptor
        assert ends.failed.wait(PATIENCE)
    with pytest.raises(WeightsError, match=r"no producer gets weights any more: OSError: .*Too many open files"):
        publisher.publish(snapshot_of(2))
    assert len(ends.failures) == 1


def test_a_line_sends_what_it_kept_before_it_says_more() -> None:
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    line = Line(here)
    kept = fill(line)
    heard = [number_of(there) for _ in range(kept - 1)]
    line.say(WireMessage(WireKind.RELEASE, kept + 1))
    assert not line.full
    heard += [number_of(there) for _ in range(2)]
    assert heard == list(range(1, kept + 2))
    line.close()
    there.close()


def test_a_receiver_sends_what_it_kept_when_it_asks_for_news(connected: tuple[SharedReceiver, socket.socket]) -> None:
    receiver, channel = connected
    hello, _ = receive(channel) or (None, None)
    assert hello is not None
    assert hello.text == "p0"
    kept = fill(receiver._line)
    assert [number_of(channel) for _ in range(kept - 1)] == list(range(1, kept))
    assert receiver.newer_than(-1) is None
    assert number_of(channel) == kept


def fill(line: Line) -> int:
    """Say RELEASE of 1, 2, … until one is kept: the last."""
    number = 0
    while not line.full:
        number += 1
        line.say(WireMessage(WireKind.RELEASE, number))
    return number


def number_of(channel: socket.socket) -> int:
    """The version of the next message, which must be there."""
    channel.setblocking(False)
    message, _ = receive(channel) or (None, None)
    assert message is not None
    return message.version
