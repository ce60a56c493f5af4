"""A producer says which process it is; a process of that number on the trainer's host is not ended."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from multiprocessing.connection import Client
from typing import Any, cast

import pytest
from rlcore_plugin_vllm.engine_publisher import EnginePublisher


@pytest.fixture
def innocent() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "60"]) as process:
        yield process
        process.kill()


def test_the_runtime_is_asked_to_end_a_producer_whatever_process_it_names(innocent: subprocess.Popen[bytes]) -> None:
    publisher = EnginePublisher(1.0, 1 << 20, None, sender=cast("Any", None))
    dropped, ends = list[str](), list[str]()
    publisher.on_drop, publisher.on_end = dropped.append, ends.append
    try:
        address, key = publisher.address()
        with Client(address, authkey=key) as channel:
            channel.send(("producer", "p0", innocent.pid, 1, ""))
            until = time.monotonic() + 30
            while not publisher._engines and time.monotonic() < until:
                time.sleep(0.01)
            publisher._end(publisher._engines[0], "stalled")
    finally:
        publisher.close()
    assert ends == ["p0"]
    assert "so it was ended" in dropped[0]
    with pytest.raises(subprocess.TimeoutExpired):
        innocent.wait(0.2)
