"""The rules about sleep catch planted bugs: engines that drop requests, or serve weights that they gave away."""

from __future__ import annotations

import pytest
from suites_of_fakes import FakeEngineSuite

from rlcore.contracts.errors import RunError
from rlcore.contracts.snapshots import Snapshot
from rlcore.testing import FakeInference


class SleepsOnRequests(FakeInference):
    """Requests in flight are forgotten."""

    def sleep(self) -> None:
        self._waiting.clear()
        self._running.clear()
        super().sleep()


class ServesWhatIsLeft(FakeInference):
    """After ``wake`` whatever stands in memory is served."""

    def wake(self) -> None:
        super().wake()
        self._fresh = True


class ServesAsleep(FakeInference):
    """Sleep is a word."""

    def sleep(self) -> None:
        return


class WakesOnce(FakeInference):
    """The second time it stays asleep."""

    slept = 0

    def update(self, snapshot: Snapshot) -> int:
        version = super().update(snapshot)
        self._fresh = self.slept < 2
        return version

    def sleep(self) -> None:
        super().sleep()
        self.slept += 1


@pytest.mark.parametrize(
    ("bug", "rule", "says"),
    [
        (SleepsOnRequests, "test_sleep_waits_for_what_is_in_flight", "sleep with requests in flight is no RunError"),
        (ServesWhatIsLeft, "test_serves_nothing_between_sleep_and_update", "submit after wake, before update"),
        (ServesAsleep, "test_serves_nothing_between_sleep_and_update", "submit while it sleeps"),
        (WakesOnce, "test_sleeps_and_wakes", "wake"),
    ],
)
def test_the_suite_catches_the_bug(bug: type[FakeInference], rule: str, says: str) -> None:
    suite = type("Suite", (FakeEngineSuite,), {"engine": bug})()
    with pytest.raises((AssertionError, RunError), match=says):
        getattr(suite, rule)()
