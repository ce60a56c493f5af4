"""TimeAccount: every second belongs to one activity, and the shares add up."""

from __future__ import annotations

from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.schedule.accounting import IDLE, TimeAccount


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def account(clock: Clock) -> TimeAccount:
    return TimeAccount(clock)


def test_inner_spans_are_not_counted_twice(account: TimeAccount, clock: Clock) -> None:
    clock.now += 1
    with account.span("generation"):
        clock.now += 2
        with account.span("scoring"):
            clock.now += 4
        clock.now += 8
    clock.now += 16
    assert account.totals() == {IDLE: 17.0, "generation": 10.0, "scoring": 4.0}


def test_an_open_span_counts_up_to_now(account: TimeAccount, clock: Clock) -> None:
    with account.span("generation"):
        clock.now += 2
        assert account.totals() == {IDLE: 0.0, "generation": 2.0}
        clock.now += 1
    assert account.totals()["generation"] == 3.0


def test_take_starts_again_and_keeps_the_open_span(account: TimeAccount, clock: Clock) -> None:
    with account.span("generation"):
        clock.now += 2
        assert account.take() == {IDLE: 0.0, "generation": 2.0}
        clock.now += 3
    clock.now += 1
    assert account.take() == {IDLE: 1.0, "generation": 3.0}
    assert account.take() == {IDLE: 0.0}


def test_a_span_left_by_an_exception_is_closed(account: TimeAccount, clock: Clock) -> None:
    def work() -> None:
        with account.span("generation"):
            clock.now += 2
            raise KeyError("x")

    with pytest.raises(KeyError):
        work()
    clock.now += 1
    assert account.totals() == {IDLE: 1.0, "generation": 2.0}


def test_a_span_inside_itself_is_one_activity(account: TimeAccount, clock: Clock) -> None:
    with account.span("generation"), account.span("generation"):
        clock.now += 2
    assert account.totals() == {IDLE: 0.0, "generation": 2.0}


def test_an_activity_needs_a_name(account: TimeAccount) -> None:
    with pytest.raises(ValueError, match="name of an activity"), account.span(""):
        pass


def test_other_threads_may_read_but_not_open_spans(account: TimeAccount, clock: Clock) -> None:
    seen: list[object] = []

    def elsewhere() -> None:
        seen.append(account.totals())
        try:
            with account.span("scoring"):
                pass
        except ValueError as error:
            seen.append(str(error))

    with account.span("generation"):
        clock.now += 2
        thread = Thread(target=elsewhere)
        thread.start()
        thread.join()
    assert seen[0] == {IDLE: 0.0, "generation": 2.0}
    assert "another thread is inside 'generation'" in str(seen[1])


def test_two_threads_may_take_turns(account: TimeAccount, clock: Clock) -> None:
    def elsewhere() -> None:
        with account.span("scoring"):
            clock.now += 3

    thread = Thread(target=elsewhere)
    thread.start()
    thread.join()
    with account.span("generation"):
        clock.now += 2
    assert account.totals() == {IDLE: 0.0, "scoring": 3.0, "generation": 2.0}


@settings(deadline=None)
@given(st.lists(st.sampled_from(["open a", "open b", "close", "tick", "take"]), max_size=30))
def test_the_shares_sum_to_the_time_elapsed(events: list[str]) -> None:
    clock = Clock()
    account, open_spans, taken, ticks = TimeAccount(clock), [], 0.0, 0
    for event in events:
        if event.startswith("open"):
            open_spans.append(account.span(event))
            open_spans[-1].__enter__()
        elif event == "close" and open_spans:
            open_spans.pop().__exit__(None, None, None)
        elif event == "take":
            taken += sum(account.take().values())
        elif event == "tick":
            ticks += 1
            clock.now += ticks
    assert taken + sum(account.totals().values()) == clock.now - 100.0
