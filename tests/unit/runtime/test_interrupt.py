"""Ctrl-C: what is said of it."""

from __future__ import annotations

import io
import signal
import threading
from concurrent.futures import Future

import pytest

from rlcore.runtime.interrupt import SignalInterrupt, result_of


class Interrupted(io.RawIOBase):
    """A stream at which Ctrl-C is pressed while the first line is written."""

    def __init__(self) -> None:
        self.text = b""

    def writable(self) -> bool:
        return True

    def write(self, data) -> int:  # type: ignore[no-untyped-def]
        if not self.text:
            signal.raise_signal(signal.SIGINT)
        self.text += bytes(data)
        return len(data)


def test_it_is_told_to_a_stream_that_is_written_to_at_that_moment() -> None:
    raw = Interrupted()
    stream = io.BufferedWriter(raw)

    def tell(text: str) -> None:
        stream.write(text.encode() + b"\n")
        stream.flush()

    with SignalInterrupt(tell) as interrupt:
        tell("step 1")
        assert interrupt.requested
    first, second = raw.text.decode().splitlines()
    assert (first, second.partition(":")[0]) == ("step 1", "interrupted")


@pytest.mark.timeout(30)
def test_a_signal_that_does_not_wake_the_main_thread_is_heard_while_it_waits_for_a_call() -> None:
    """As one that arrives just before the wait. Here another thread takes it."""
    call: Future[str] = Future()
    before = signal.signal(signal.SIGUSR1, lambda number, frame: call.set_result("heard"))
    try:
        threading.Timer(0.1, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGUSR1)).start()
        assert result_of(call) == "heard"
    finally:
        signal.signal(signal.SIGUSR1, before)
