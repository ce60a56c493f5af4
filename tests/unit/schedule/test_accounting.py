"""TimeAccount: every second belongs to one activity, and the shares add up."""

from __future__ import annotations

import pickle
from itertools import pairwise
from threading import Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rlcore.schedule.accounting import IDLE, MOST_SPANS, Role, Span, TimeAccount, Timeline, WorkerTime


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


def report(account: TimeAccount) -> WorkerTime:
    return account.report("p0", Role.PRODUCER)


def seconds(account: TimeAccount) -> dict[str, float]:
    return dict(report(account).seconds)


def test_inner_spans_are_not_counted_twice(account: TimeAccount, clock: Clock) -> None:
    clock.now += 1
    with account.span("generation"):
        clock.now += 2
        with account.span("scoring"):
            clock.now += 4
        clock.now += 8
    clock.now += 16
    assert seconds(account) == {IDLE: 17.0, "generation": 10.0, "scoring": 4.0}


def test_a_report_counts_up_to_now_and_keeps_the_open_span(account: TimeAccount, clock: Clock) -> None:
    with account.span("generation"):
        clock.now += 2
        assert seconds(account) == {IDLE: 0.0, "generation": 2.0}
        clock.now += 3
    clock.now += 1
    assert seconds(account) == {IDLE: 1.0, "generation": 3.0}
    assert seconds(account) == {IDLE: 0.0}


def test_a_span_left_by_an_exception_is_closed(account: TimeAccount, clock: Clock) -> None:
    def work() -> None:
        with account.span("generation"):
            clock.now += 2
            raise KeyError("x")

    with pytest.raises(KeyError):
        work()
    clock.now += 1
    assert seconds(account) == {IDLE: 1.0, "generation": 2.0}


def test_a_span_inside_itself_is_one_activity(account: TimeAccount, clock: Clock) -> None:
    with account.span("generation"), account.span("generation"):
        clock.now += 2
    assert seconds(account) == {IDLE: 0.0, "generation": 2.0}


def test_an_activity_needs_a_name(account: TimeAccount) -> None:
    with pytest.raises(ValueError, match="name of an activity"), account.span(""):
        pass


def test_other_threads_may_read_but_not_open_spans(account: TimeAccount, clock: Clock) -> None:
    seen: list[object] = []

    def elsewhere() -> None:
        seen.append(seconds(account))
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
    assert seconds(account) == {IDLE: 0.0, "scoring": 3.0, "generation": 2.0}


@settings(deadline=None)
@given(st.lists(st.sampled_from(["open a", "open b", "close", "tick", "report"]), max_size=30))
def test_the_shares_sum_to_the_time_elapsed(events: list[str]) -> None:
    clock = Clock()
    account, open_spans, taken, ticks = TimeAccount(clock), [], 0.0, 0
    for event in events:
        if event.startswith("open"):
            open_spans.append(account.span(event))
            open_spans[-1].__enter__()
        elif event == "close" and open_spans:
            open_spans.pop().__exit__(None, None, None)
        elif event == "report":
            taken += sum(seconds(account).values())
        elif event == "tick":
            ticks += 1
            clock.now += ticks
    assert taken + sum(seconds(account).values()) == clock.now - 100.0


def test_a_report_says_what_happened_since_the_last_one(clock: Clock) -> None:
    account = TimeAccount(clock, wall=lambda: 5000.0)  # the account's clock says 100 then
    clock.now += 1
    with account.span("generation"):
        clock.now += 2
        first = report(account)
        clock.now += 3
    clock.now += 4
    assert first == WorkerTime(
        worker="p0", role=Role.PRODUCER, seconds={IDLE: 1.0, "generation": 2.0}, spans=(Span("generation", 5001.0, 2.0),)
    )
    assert report(account) == WorkerTime(
        worker="p0", role=Role.PRODUCER, seconds={IDLE: 4.0, "generation": 3.0}, spans=(Span("generation", 5003.0, 3.0),)
    )


def test_a_report_up_to_a_moment_takes_no_time_back(account: TimeAccount, clock: Clock) -> None:
    """The moment may be before a span that ended meanwhile; what is reported next goes on from there."""
    with account.span("generation"):
        clock.now += 3.0
    assert account.report("p0", Role.PRODUCER, until=102.0).seconds == {IDLE: 0.0, "generation": 3.0}
    clock.now += 1.0
    assert account.report("p0", Role.PRODUCER, until=102.5).seconds == {IDLE: 0.0}
    assert seconds(account) == {IDLE: 1.0}


def test_a_report_travels_between_processes(account: TimeAccount, clock: Clock) -> None:
    with account.span("scoring"):
        clock.now += 2
    sent = report(account)
    assert pickle.loads(pickle.dumps(sent)) == sent


def test_an_outer_span_is_drawn_around_the_inner_one_and_not_below_it(account: TimeAccount, clock: Clock) -> None:
    with account.span("generation"):
        clock.now += 2
        with account.span("weights"):
            clock.now += 4
        clock.now += 8
    drawn = report(account).spans
    assert [(span.activity, span.seconds) for span in drawn] == [("generation", 2.0), ("weights", 4.0), ("generation", 8.0)]
    assert all(one.end == other.start for one, other in pairwise(drawn))


def test_spans_that_nearly_touch_are_drawn_as_one(account: TimeAccount, clock: Clock) -> None:
    for _ in range(3):
        with account.span("generation"):
            clock.now += 1
        with account.span("scoring"):
            clock.now += 0.0005
    clock.now += 0.01
    with account.span("generation"):
        clock.now += 1
    told = report(account)
    assert [(span.activity, round(span.seconds, 4)) for span in told.spans] == [
        ("generation", 3.001),
        ("scoring", 0.0005),
        ("generation", 1.0),
    ]
    assert told.seconds == pytest.approx({IDLE: 0.01, "generation": 4.0, "scoring": 0.0015})


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 3.0), st.floats(0.0, 3.0)), max_size=60),
    st.integers(1, 20),
)
def test_a_timeline_is_in_order_apart_bounded_and_true_to_its_resolution(added: list[tuple[str, float, float]], limit: int) -> None:
    timeline, now, true = Timeline(limit, resolution=0.5), 0.0, dict.fromkeys("abc", 0.0)
    for activity, gap, seconds in added:
        start = now + gap
        now = start + seconds
        timeline.add(activity, start, now)
        true[activity] += now - start
    spans = timeline.spans()
    assert len(spans) <= max(limit, 3)  # where all of it lies within the resolution, one span an activity is left
    assert all(one.end <= other.start + 1e-9 for one, other in pairwise(spans))
    for activity, seconds in true.items():
        drawn = sum(span.seconds for span in spans if span.activity == activity)
        assert abs(drawn - seconds) <= timeline.resolution * len(added) + 1e-9


def test_an_account_that_nobody_asks_keeps_a_bounded_number_of_spans(account: TimeAccount, clock: Clock) -> None:
    for _ in range(3 * MOST_SPANS):
        for activity in ("generation", "scoring", "weights"):
            with account.span(activity):
                clock.now += 1
    told = report(account)
    assert 0 < len(told.spans) <= MOST_SPANS
    assert told.seconds["generation"] == 3 * MOST_SPANS
