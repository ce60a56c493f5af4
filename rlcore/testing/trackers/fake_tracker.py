"""A tracker that keeps records in memory, and raises if an option says so."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, Field

from rlcore.contracts.interfaces import RunInfo, Tracker

__all__ = ["FakeTracker", "FakeTrackerOptions"]


class FakeTrackerOptions(BaseModel):
    """Options of the ``fake`` tracker."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    fail: Literal["never", "open", "log", "close"] = Field(default="never", description="The call that raises.")
    after: int = Field(default=0, ge=0, description="Records that are kept before `log` raises.")


class FakeTracker(Tracker):
    """``records`` in order, ``run`` from ``open``, ``closed``; ``FakeTracker.made`` lists every instance of the process, newest last."""

    made: ClassVar[list[FakeTracker]] = []

    def __init__(self, options: FakeTrackerOptions | None = None) -> None:
        self.options = options if options is not None else FakeTrackerOptions()
        self.run: RunInfo | None = None
        self.records: list[dict[str, Any]] = []
        self.closed = False
        FakeTracker.made.append(self)

    def open(self, run: RunInfo) -> None:
        """Keep the run. If it is resumed, keep the records of the last tracker of its folder up to that step."""
        self._maybe_fail("open")
        self.run = run
        before = [made for made in FakeTracker.made if made is not self and made.run is not None and made.run.folder == run.folder]
        if run.step and before:
            self.records = [record for record in before[-1].records if record["step"] <= run.step]

    def log(self, record: Mapping[str, Any]) -> None:
        """Keep a copy of the record."""
        if len(self.records) >= self.options.after:
            self._maybe_fail("log")
        self.records.append(dict(record))

    def close(self) -> None:
        """Note the end."""
        self._maybe_fail("close")
        self.closed = True

    def _maybe_fail(self, call: str) -> None:
        if self.options.fail == call:
            raise RuntimeError(f"the fake tracker was told to fail in {call}")
