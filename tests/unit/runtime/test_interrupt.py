"""Ctrl-C: what is said of it."""

from __future__ import annotations

import io
import signal

from rlcore.runtime.interrupt import SignalInterrupt


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
