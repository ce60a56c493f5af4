"""A pulse: old while its thread is at one thing, never old while it rests, and it knows where its thread is."""

from __future__ import annotations

import threading

import pytest

from rlcore.runtime.watchdog import Watchdog


class Clock:
    def __init__(self) -> None:
        self.now = 50.0

    def __call__(self) -> float:
        return self.now


def test_it_ages_from_beat_to_beat() -> None:
    clock = Clock()
    pulse = Watchdog(clock)
    clock.now += 9
    assert pulse.age == 0.0, "before its thread has begun"
    pulse.beat()
    clock.now += 3
    assert pulse.age == 3.0
    pulse.beat()
    assert pulse.age == 0.0


def test_rest_is_not_age_and_ends_with_a_beat_also_by_an_error() -> None:
    clock = Clock()
    pulse = Watchdog(clock)
    pulse.beat()

    def rests() -> None:
        with pulse.resting():
            clock.now += 100
            assert pulse.age == 0.0
            raise KeyError("x")

    with pytest.raises(KeyError):
        rests()
    clock.now += 2
    assert pulse.age == 2.0


def test_it_knows_where_its_thread_is() -> None:
    pulse, there, go = Watchdog(), threading.Event(), threading.Event()

    def hangs_here() -> None:
        pulse.beat()
        there.set()
        go.wait()

    thread = threading.Thread(target=hangs_here)
    thread.start()
    there.wait()
    where = pulse.where()
    go.set()
    thread.join()
    assert " in wait" in where or " in hangs_here" in where
    assert pulse.where() == "a thread that has ended"
