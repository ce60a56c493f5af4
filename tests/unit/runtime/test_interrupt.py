"""The signals that ask a run to end after its step."""

from __future__ import annotations

import signal

import pytest

from rlcore.runtime.interrupt import Interrupt


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_the_first_signal_asks_and_the_second_ends(number: signal.Signals) -> None:
    said: list[str] = []
    before = signal.getsignal(number)
    with Interrupt(said.append) as interrupt:
        signal.raise_signal(number)
        assert interrupt.requested
        assert len(said) == 1
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    assert signal.getsignal(number) is before


def test_a_signal_that_nohup_has_switched_off_stays_off() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Interrupt(lambda text: None) as interrupt:
            signal.raise_signal(signal.SIGHUP)
            assert not interrupt.requested
    finally:
        signal.signal(signal.SIGHUP, before)
