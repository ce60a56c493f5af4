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
    """Subclass it and say in ``make`` how the tracker is made. ``kept`` says what it has kept, for a tracker that can be read back."""

    records: tuple[Mapping[str, Any], ...] = (
        {"step": 1, "reward/mean": 0.5, "loss/policy": -0.25, "tokens": 12},
        {"step": 1, "eval/heldout/accuracy": 0.25},
        {"step": 2, "reward/mean": math.nan, "loss/policy": math.inf, "time/bubble": 0.0},
    )
    """What a run tells it: several records a step, other names in each, figures that are no finite number."""

    def make(self, folder: Path) -> Tracker:
        """A fresh tracker that keeps what it is told in ``folder``, if it keeps anything."""
        raise NotImplementedError

    def kept(self, folder: Path) -> list[Mapping[str, Any]] | None:
        """The records that a closed tracker has kept, in order, with the names that it was told; None if it cannot be read back."""
        return None

    def run_info(self, folder: Path) -> RunInfo:
        """What ``open`` is given."""
        (folder / "run").mkdir(exist_ok=True)
        return RunInfo(folder=folder / "run", config={"run": {"project": "suite"}, "training": {"train_batch_size": 4}})

    def test_nothing_is_kept_before_the_run_opens(self, tmp_path: Path) -> None:
        """Making a tracker writes nothing: a run may still be refused."""
        self.make(tmp_path)
        assert not list(tmp_path.rglob("*")), f"made, and wrote {[str(path) for path in tmp_path.rglob('*')]}"

    def test_every_record_is_taken(self, tmp_path: Path) -> None:
        """All of ``records``, in their order; the tracker raises for none of them."""
        tracker = self.make(tmp_path)
        tracker.open(self.run_info(tmp_path))
        for record in self.records:
            tracker.log(record)
        tracker.close()
        kept = self.kept(tmp_path)
        assert kept is None or [sorted(record) for record in kept] == [sorted(record) for record in self.records], f"it kept {kept}"
        assert kept is None or [record["step"] for record in kept] == [record["step"] for record in self.records]

    def test_a_record_is_left_as_it_was(self, tmp_path: Path) -> None:
        """Other trackers and observers are given the same one."""
        tracker = self.make(tmp_path)
        tracker.open(self.run_info(tmp_path))
        record = dict(self.records[0])
        tracker.log(record)
        tracker.close()
        assert record == self.records[0], f"the record was changed to {record}"

    def test_a_run_that_fails_at_once_closes_it(self, tmp_path: Path) -> None:
        """``close`` follows ``open`` without a record in between."""
        tracker = self.make(tmp_path)
        tracker.open(self.run_info(tmp_path))
        tracker.close()

    def test_a_run_that_goes_on_keeps_each_record_once(self, tmp_path: Path) -> None:
        """Opened again with ``run.step``, it keeps the records up to that step, which ``run.records()`` says too; later ones come again."""
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
        assert kept is None or [record["step"] for record in kept] == expected, f"a run that went on after step 1 kept {kept}"

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
