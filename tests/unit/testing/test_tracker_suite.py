"""The suite of trackers passes the fake one and finds what others do wrong."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from rlcore.contracts.interfaces import RunInfo, Tracker
from rlcore.testing import TrackerSuite
from rlcore.testing.trackers.fake_tracker import FakeTracker


class TestFakeTracker(TrackerSuite):
    def make(self, folder: Path) -> Tracker:
        return FakeTracker()

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        return list(FakeTracker.made[-1].records)


class Early(FakeTracker):
    """Writes when it is made."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        (folder / "early").touch()


class DropsNames(FakeTracker):
    """Keeps the step only."""

    def __init__(self, folder: Path) -> None:
        super().__init__()

    def log(self, record: Mapping[str, Any]) -> None:
        super().log({"step": record["step"]})


class Takes(DropsNames):
    """Takes the step out of the record."""

    def log(self, record: Mapping[str, Any]) -> None:
        FakeTracker.log(self, record)
        record.pop("step")  # type: ignore[attr-defined]


class NeedsARecord(DropsNames):
    """Cannot close without one."""

    def close(self) -> None:
        self.records[0]


class Shares(DropsNames):
    """One list for all runs."""

    every: list[dict[str, Any]] = []  # noqa: RUF012 - the fault

    def open(self, run: RunInfo) -> None:
        super().open(run)
        self.records = self.every

    def log(self, record: Mapping[str, Any]) -> None:
        FakeTracker.log(self, record)


class Forgets(DropsNames):
    """Begins anew when its run goes on."""

    def open(self, run: RunInfo) -> None:
        self.run = run

    def log(self, record: Mapping[str, Any]) -> None:
        FakeTracker.log(self, record)


@pytest.mark.parametrize(
    ("tracker", "test"),
    [
        (Early, "test_nothing_is_kept_before_the_run_opens"),
        (DropsNames, "test_every_record_is_taken"),
        (Takes, "test_a_record_is_left_as_it_was"),
        (NeedsARecord, "test_a_run_that_fails_at_once_closes_it"),
        (Forgets, "test_a_run_that_goes_on_keeps_each_record_once"),
        (Shares, "test_two_runs_do_not_share_state"),
    ],
)
def test_a_broken_tracker_fails(tracker: Any, test: str, tmp_path: Path) -> None:
    class Suite(TestFakeTracker):
        def make(self, folder: Path) -> Tracker:
            made: Tracker = tracker(folder)
            return made

    with pytest.raises((AssertionError, IndexError)):
        getattr(Suite(), test)(tmp_path)
