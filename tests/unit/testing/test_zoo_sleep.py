"""The rules about sleep catch planted bugs: engines that drop requests, or serve weights that they gave away."""

from __future__ import annotations

import pytest
from suites_of_fakes import FakeEngineSuite

from rlcore.contracts.errors import RunError
from rlcore.contracts.snapshots import Bucket, WeightsManifest
from rlcore.contracts.specs import InFlight
from rlcore.testing import FakeInference


class SleepsOnRequests(FakeInference):
    """Requests in flight are forgotten."""

    def sleep(self, level: int = 1) -> None:
        self._waiting.clear()
        self._running.clear()
        super().sleep(level)


class ServesWhatIsLeft(FakeInference):
    """After ``wake`` whatever stands in memory is served."""

    def wake(self) -> None:
        super().wake()
        self._fresh = True


class ServesAsleep(FakeInference):
    """Sleep is a word."""

    def sleep(self, level: int = 1) -> None:
        return


class KnowsOneLevel(FakeInference):
    """Nobody told it of level 2."""

    def sleep(self, level: int = 1) -> None:
        if level != 1:
            raise RunError(f"there is no level {level}")
        super().sleep(level)


class WakesOnce(FakeInference):
    """The second time it stays asleep."""

    slept = 0

    def finish_update(self) -> int:
        version = super().finish_update()
        self._fresh = self.slept < 2
        return version

    def sleep(self, level: int = 1) -> None:
        super().sleep(level)
        self.slept += 1


class TakesWeightsAsleep(FakeInference):
    """An update fills what is about to be freed."""

    def begin_update(self, version: int, manifest: WeightsManifest, in_flight: InFlight) -> None:
        awake, self._awake = self._awake, True
        super().begin_update(version, manifest, in_flight)
        self._awake = awake


class ServesWhatHasBegun(FakeInference):
    """The first bucket after ``wake`` is enough for it."""

    def receive(self, bucket: Bucket) -> None:
        super().receive(bucket)
        self._fresh = True


SLEEPERS = [
    (SleepsOnRequests, "test_sleep_waits_for_what_is_in_flight", "sleep with requests in flight is not a RunError"),
    (ServesWhatIsLeft, "test_serves_nothing_between_sleep_and_update", "submit after wake, before an update"),
    (ServesAsleep, "test_serves_nothing_between_sleep_and_update", "submit while it sleeps"),
    (TakesWeightsAsleep, "test_serves_nothing_between_sleep_and_update", "begin_update while it sleeps"),
    (ServesWhatHasBegun, "test_serves_nothing_between_sleep_and_update", "submit after wake, in the middle of an update"),
    (KnowsOneLevel, "test_sleeps_and_wakes", "there is no level 2"),
    (WakesOnce, "test_sleeps_and_wakes", "wake"),
]


@pytest.mark.parametrize(
    ("bug", "rule", "says"),
    SLEEPERS,
)
def test_the_suite_catches_the_bug(bug: type[FakeInference], rule: str, says: str) -> None:
    suite = type("Suite", (FakeEngineSuite,), {"engine": bug})()
    with pytest.raises((AssertionError, RunError), match=says):
        getattr(suite, rule)()
