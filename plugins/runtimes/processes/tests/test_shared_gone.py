"""The ends of a connection of the shared transport: who hangs up, whose process is gone, and what was said before."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest
from kit_weights import PATIENCE, Ends, News, snapshot_of, wait_for
from rlcore_plugin_processes import shared_readers
from rlcore_plugin_processes.shared_wire import WireKind, WireMessage

from rlcore.api.weights import WeightsError
from rlcore.testing.weights import publish


def test_a_publisher_that_hangs_up_between_two_versions_is_an_error_of_its_receiver(ends: Ends) -> None:
    """Else its producer would wait for ever, without a word."""
    publisher = ends.publisher()
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    wait_for(receiver, 1)
    receiver.release(1)
    with publisher._changed:
        (reader,) = publisher._readers.present()
        publisher._readers._forget(reader)
    assert isinstance(receiver.on_news, News)
    with pytest.raises(WeightsError, match=rf"^producer p0: the trainer \(process {os.getpid()} on .* disconnected between two versions$"):
        wait_for(receiver, 2)


def test_what_a_reader_said_before_its_time_was_up_is_heard_first(ends: Ends) -> None:
    """The trainer may have stood still for longer than the deadline, and the release may stand behind another message."""
    publisher = ends.publisher(deadline=5.0)
    receiver = ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    wait_for(receiver, 1)
    with publisher._changed:
        (reader,) = publisher._readers.present()
        assert publisher._changed.wait_for(lambda: reader.verified == 1, PATIENCE)
        receiver._say(WireMessage(WireKind.VERIFIED, 1, (0,)))
        receiver.release(1)
        reader.late = time.monotonic() - 6.0
    publish(publisher, snapshot_of(2))
    wait_for(receiver, 2)
    assert not ends.drops


def test_a_reader_whose_process_is_gone_is_forgotten_though_its_child_has_the_socket(ends: Ends) -> None:
    publisher = ends.publisher()
    program = (
        "import os, sys, time\n"
        "from rlcore_plugin_processes.shared_wire import WireKind, WireMessage, connect\n"
        "channel = connect(sys.argv[1])\n"
        "channel.send(WireMessage(WireKind.HELLO, text='p0').to_bytes())\n"
        "if not os.fork():\n"
        "    sys.stdin.read()\n"
        "    os._exit(0)\n"
        "print('forked', flush=True)\n"
        "time.sleep(60)\n"
    )
    command = [sys.executable, "-c", program, publisher.address().name]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with publisher._changed:
            assert publisher._changed.wait_for(publisher._readers.present, PATIENCE)
            process.kill()
            assert publisher._changed.wait_for(lambda: not publisher._readers.present(), 10.0), "it is not forgotten"


def test_a_reader_whose_number_is_another_s_is_forgotten_and_nobody_killed(ends: Ends, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a system that has no descriptors of processes: the runtime is asked, which has a handle of its own."""
    killed, ends_asked = list[int](), list[str]()
    monkeypatch.delattr(shared_readers.os, "pidfd_open")
    monkeypatch.setattr(shared_readers.os, "kill", lambda pid, signal: killed.append(pid))
    monkeypatch.setattr(shared_readers.os, "getpid", lambda: -1)
    publisher = ends.publisher()
    publisher.on_end = ends_asked.append
    ends.receiver(publisher)
    publish(publisher, snapshot_of(1))
    with publisher._changed:
        assert publisher._changed.wait_for(publisher._readers.present, PATIENCE)
        (reader,) = publisher._readers.present()
        publisher._readers.end(reader, "kept version 1")
        assert not publisher._readers.present()
    assert ends_asked == [reader.name]
    assert not killed
    assert not ends.failures
