"""The driver's one place to wait: values in order, the first error at once, events of others in between, timers."""

from __future__ import annotations

import pytest
from rlcore_plugin_workers.driver_inbox import DriverInbox

from rlcore.api import RunError
from rlcore.api.runtime import RuntimeLostError, WorkerLostError
from tests.worker_answers import Answer


def test_values_come_in_the_order_of_the_calls() -> None:
    inbox, refs = DriverInbox(), [Answer(), Answer()]
    refs[1].give("b")
    refs[0].give("a")
    assert inbox.wait(refs) == ["a", "b"]


def test_the_first_error_ends_the_wait_for_all_and_says_which() -> None:
    inbox, refs = DriverInbox(), [Answer(), Answer()]
    refs[1].fail(RunError("broken"))
    with pytest.raises(RunError, match="rank 1: broken"):
        inbox.wait(refs, lambda number, error: RunError(f"rank {number}: {error}"))


def test_what_others_have_to_say_is_heard_while_it_waits() -> None:
    inbox, ref, heard = DriverInbox(), Answer(), list[str]()
    inbox.post(lambda: heard.append("first"))
    inbox.after(0.01, lambda: ref.give("value"))
    assert inbox.wait([ref]) == ["value"]
    assert heard == ["first"]


def test_a_wait_with_a_limit_ends() -> None:
    assert not DriverInbox().until(lambda: False, 0.01)


def test_drain_takes_what_is_there_and_does_not_wait() -> None:
    inbox, heard = DriverInbox(), list[int]()
    for number in range(3):
        inbox.post(lambda number=number: heard.append(number))  # type: ignore[misc]
    inbox.drain()
    assert heard == [0, 1, 2]


@pytest.mark.parametrize("death", [WorkerLostError("rank 1 died"), RuntimeLostError("the head does not answer")])
def test_the_cause_of_an_error_is_the_loss_that_is_told_soon_after(death: RunError) -> None:
    inbox = DriverInbox()

    def told() -> None:
        raise death

    inbox.after(0.01, told)
    assert inbox.cause(RunError("connection reset")) is death
