"""A producer says which process it is; a process of that number on the trainer's host is not ended."""

from __future__ import annotations

import subprocess
import time
from multiprocessing.connection import Client
from typing import Any, cast

from rlcore_plugin_vllm.engine_publisher import EnginePublisher


def test_a_producer_that_names_a_strangers_process_is_told_to_end_itself() -> None:
    publisher, innocent = EnginePublisher(1.0, 1 << 20, None, sender=cast("Any", None)), subprocess.Popen(["sleep", "60"])
    try:
        (address, key), dropped = publisher.address(), list[str]()
        publisher.on_drop = dropped.append
        with Client(address, authkey=key) as channel:
            channel.send(("producer", "p0", innocent.pid, 1, ""))
            until = time.monotonic() + 30
            while not publisher._engines and time.monotonic() < until:
                time.sleep(0.01)
            publisher._end(publisher._engines[0], "stood still")
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
