"""The base class of trackers of metrics."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any

from rlcore.contracts.run_info import RunInfo

__all__ = ["Tracker"]


class Tracker(ABC):
    """A receiver of every metric record.

    If a tracker raises, also in its constructor, the error is reported once, the tracker is switched off, and the summary names it.
    """

    @abstractmethod
    def open(self, run: RunInfo) -> None:
        """Begin to track a run.

        If ``run.step`` is not 0, the run is resumed. Then continue the existing record of this run, and drop records of later steps,
        because they will arrive again. ``run.records()`` yields the records up to that step.
        """

    @abstractmethod
    def log(self, record: Mapping[str, Any]) -> None:
        """Receive one record: ``{"step": 3, "reward/mean": 4.1, …}``."""

    def close(self) -> None:  # noqa: B027
        """End tracking. The run has ended, successfully or not."""
