"""A producer says which process it is; a process of that number on the trainer's host is not ended."""

from __future__ import annotations

import subprocess
import time
from multiprocessing.connection import Client

from rlcore.testing.fake_collective import FakeCollectivePublisher


def test_a_producer_that_names_a_strangers_process_is_told_to_end_itself() -> None:
    publisher, innocent = FakeCollectivePublisher(1.0, 1 << 20), subprocess.Popen(["sleep", "60"])
    try:
        (address, key), dropped = publisher.address(), list[str]()
        publisher.on_drop = dropped.append
        with Client(address, authkey=key) as channel:
            channel.send(("p0", innocent.pid, 1))
            until = time.monotonic() + 30
            while not publisher._members and time.monotonic() < until:
                time.sleep(0.01)
            publisher._end(publisher._members[0], "stood still")
            assert channel.poll(30)
            assert channel.recv() == ("end",)
        assert "so it was told to end" in dropped[0]
        try:
            innocent.wait(0.2)
            raise AssertionError("the process of a stranger was ended")
        except subprocess.TimeoutExpired:
            pass
    finally:
        publisher.close()
        innocent.kill()
        innocent.wait()
