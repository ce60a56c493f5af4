"""Conformance suite for trackers of metrics."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlcore.contracts.interfaces import RunInfo, Tracker

__all__ = ["TrackerSuite"]


class TrackerSuite:
    """The rules of a tracker of metrics.

    A subclass defines in ``make`` how to make the tracker. ``kept`` returns the records that a tracker has kept, if they can be read back.
    """

    records: tuple[Mapping[str, Any], ...] = (
        {"step": 1, "reward/mean": 0.5, "loss/policy": -0.25, "tokens": 12},
        {"step": 1, "eval/heldout/accuracy": 0.25},
        {"step": 2, "reward/mean": math.nan, "loss/policy": math.inf, "time/bubble": 0.0},
    )
    """The records that the suite logs: several a step, with different names, and figures that are not finite."""

    def make(self, folder: Path) -> Tracker:
        """Return a fresh tracker that keeps its records in ``folder``, if it keeps any."""
        raise NotImplementedError

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        """Return the records that a closed tracker has kept, in order, with the names that it was given; None if it cannot be read back."""
        return None

    def run_info(self, folder: Path) -> RunInfo:
        """Return the argument of ``open``."""
        (folder / "run").mkdir(exist_ok=True)
        return RunInfo(folder=folder / "run", config={"run": {"project": "suite"}, "training": {"train_batch_size": 4}})

    def test_nothing_is_kept_before_the_run_opens(self, tmp_path: Path) -> None:
        """Making a tracker writes nothing, since a run may still be refused."""
        self.make(tmp_path)
        assert not list(tmp_path.rglob("*")), f"made, and wrote {[str(path) for path in tmp_path.rglob('*')]}"

    def test_every_record_is_taken(self, tmp_path: Path) -> None:
        """The tracker takes all ``records`` in their order, figures that are not finite included."""
        tracker = self.make(tmp_path)
        tracker.open(self.run_info(tmp_path))
        for record in self.records:
            tracker.log(record)
        tracker.close()
        kept = self.kept(tmp_path)
        assert kept is None or [sorted(record) for record in kept] == [sorted(record) for record in self.records], f"it kept {kept}"
        assert kept is None or [record["step"] for record in kept] == [record["step"] for record in self.records]

    def test_a_record_is_left_as_it_was(self, tmp_path: Path) -> None:
        """A record is unchanged afterwards: other trackers get the same one."""
        tracker = self.make(tmp_path)
        tracker.open(self.run_info(tmp_path))
        record = dict(self.records[0])
        tracker.log(record)
        tracker.close()
        assert record == self.records[0], f"the record was changed to {record}"

    def test_a_run_that_fails_at_once_closes_it(self, tmp_path: Path) -> None:
        """``close`` can follow ``open`` without a record in between."""
        tracker = self.make(tmp_path)
        tracker.open(self.run_info(tmp_path))
        tracker.close()

    def test_a_run_that_goes_on_keeps_each_record_once(self, tmp_path: Path) -> None:
        """A resumed run keeps the records up to ``run.step`` once, and takes later ones again."""
        for step in (0, 1):
            tracker, run = self.make(tmp_path), replace(self.run_info(tmp_path), step=step)
            lines = [json.dumps(record) + "\n" for record in self.records if record["step"] <= step]
            (run.folder / "metrics.jsonl").write_text("".join(lines), encoding="utf-8")
            tracker.open(run)
            for record in self.records:
                if record["step"] > step:
                    tracker.log(record)
            tracker.close()
        kept = self.kept(tmp_path)
        expected = [record["step"] for record in self.records]
        assert kept is None or [record["step"] for record in kept] == expected, f"a run that continued after step 1 kept {kept}"

    def test_two_runs_do_not_share_state(self, tmp_path: Path) -> None:
        """A second tracker of the same process works like the first."""
        for name in ("one", "two"):
            folder = tmp_path / name
            folder.mkdir()
            tracker = self.make(folder)
            tracker.open(self.run_info(folder))
            tracker.log(self.records[0])
            tracker.close()
            kept = self.kept(folder)
            assert kept is None or len(kept) == 1, f"run {name} was told one record and has {len(kept)}"
