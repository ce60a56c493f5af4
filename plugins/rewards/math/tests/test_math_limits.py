"""The time limit of a comparison, in the main thread and in others: heard, never late, and not counting what is no comparison."""

import contextlib
import signal
import threading
import time

import pytest
from rlcore_plugin_math import limits, symbolic
from rlcore_plugin_math.compare import LimitExceeded, compare
from rlcore_plugin_math.limits import _Watcher, paused, time_limit


def test_the_time_limit_is_heard_even_where_a_library_swallows_it(monkeypatch):
    def deaf(text):
        for _ in range(3):
            try:
                while True:
                    pass
            except BaseException:
                continue
        while True:
            pass

    monkeypatch.setattr(symbolic, "_parse", deaf)
    with pytest.raises(LimitExceeded, match=r"more than 0\.1 s"):
        compare("x+1", "1+y", seconds=0.1)
    in_thread = []
    thread = threading.Thread(target=lambda: in_thread.append(_reason(lambda: compare("x+1", "1+y", seconds=0.1))))
    thread.start()
    thread.join(30)
    assert in_thread == ["the comparison took more than 0.1 s"]


def _reason(call):
    try:
        call()
    except LimitExceeded as limit:
        return str(limit)
    return None


class Clock:
    """Takes the place of ``time`` in the module; ``skip`` seconds at once, as a process that is off its core."""

    def __init__(self):
        self._skipped = 0.0

    def monotonic(self):
        return time.monotonic() + self._skipped

    def skip(self, seconds):
        self._skipped += seconds


class Restless(threading.Event):
    """Returns early from waits, and counts them, so that a watcher looks at its limit all the time; it repeats an exception no sooner."""

    looks = 0

    def wait(self, timeout=None):
        self.looks += 1
        return super().wait(timeout if timeout == limits._AGAIN else 0.01)


@pytest.fixture
def clock(monkeypatch):
    """Of limits whose watchers always look."""
    made = Clock()
    monkeypatch.setattr(limits, "time", made)
    build = _Watcher.__init__

    def restless(self, *args):
        build(self, *args)
        self._over = Restless()

    monkeypatch.setattr(_Watcher, "__init__", restless)
    return made


def watched():
    """Return when the watcher of this thread's limit has looked at it once more."""
    over = limits._running.watcher._over
    until = over.looks + 2  # one look may be under way
    while over.looks < until:
        time.sleep(0.01)


def in_a_thread(body):
    """What a function returns or raises in a thread of its own."""
    found = []

    def run():
        try:
            found.append(body())
        except BaseException as error:
            found.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(60)
    assert found, "it still runs"
    return found[0]


LONG = 60.0
"""Seconds of a limit that no busy machine reaches."""


def test_a_limit_in_the_main_thread_leaves_no_timer_behind():
    handler, own = signal.getsignal(signal.SIGALRM), signal.setitimer(signal.ITIMER_REAL, 0)
    try:
        with time_limit(LONG):
            assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= LONG
        assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
        assert signal.getsignal(signal.SIGALRM) is handler
    finally:
        signal.setitimer(signal.ITIMER_REAL, *own)


def test_a_limit_in_another_thread_leaves_no_watcher_behind():
    def many():
        for _ in range(50):
            with time_limit(LONG):
                pass
        for thread in threading.enumerate():
            if thread.name == "rlcore-math-limit":
                thread.join(10)
                assert not thread.is_alive()
        return "alive"

    assert in_a_thread(many) == "alive"


def fails():
    raise ImportError("planted")


@pytest.mark.parametrize("pause", [lambda: None, fails])
def test_a_pause_stops_the_timer_of_the_main_thread_and_leaves_what_was_left(pause):
    """Also if it raises: an import that fails must not leave the comparison without a limit."""
    with time_limit(LONG):
        with contextlib.suppress(ImportError), paused():
            assert signal.getitimer(signal.ITIMER_REAL)[0] == 0
            pause()
        assert 0 < signal.getitimer(signal.ITIMER_REAL)[0] <= LONG


@pytest.mark.parametrize("pause", [lambda: None, fails])
def test_a_pause_in_another_thread_does_not_count_and_leaves_what_was_left(clock, pause):
    """It is longer than the limit, as an import may be on a busy machine."""

    def after_a_pause():
        with time_limit(LONG):
            with contextlib.suppress(ImportError), paused():
                clock.skip(2 * LONG)
                watched()
                pause()
            watched()
            alive.append(True)
            clock.skip(2 * LONG)
            watched()

    alive = []
    assert isinstance(in_a_thread(after_a_pause), LimitExceeded)
    assert alive


def test_a_watcher_that_starts_late_takes_nothing_from_the_limit(clock, monkeypatch):
    """Else its exception arrives before the block that would name it and end it."""
    start = threading.Thread.start

    def late(thread):
        start(thread)
        if thread.name == "rlcore-math-limit":
            clock.skip(2 * LONG)

    def limited():
        with time_limit(LONG):
            watched()
        return "alive"

    monkeypatch.setattr(threading.Thread, "start", late)
    assert in_a_thread(limited) == "alive"


def test_the_callers_own_alarm_is_kept():
    before = signal.setitimer(signal.ITIMER_REAL, 100)
    try:
        compare("x+1", "1+x", seconds=5.0)
        assert 50 < signal.getitimer(signal.ITIMER_REAL)[0] <= 100
    finally:
        signal.setitimer(signal.ITIMER_REAL, *before)
