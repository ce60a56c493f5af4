"""What a part is told and what it gives back. Standard library only."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["DOCUMENT", "REPOSITORY", "UNFINISHED", "Outcome", "Setting"]

REPOSITORY = Path(__file__).resolve().parents[2]
DOCUMENT = REPOSITORY / "docs" / "maintainers" / "gpu.md"
"""The page that a run on a GPU writes its tables into."""
UNFINISHED = "unfinished"
"""Status of what a part reported on its way; the runner makes ``failed`` of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """``device``: cuda or cpu; ``tiny``: models and loads of a few seconds; ``scratch``: a folder that is removed afterwards;
    ``keep``: a folder for files worth keeping, traces for one; ``until``: the monotonic time at which the part is ended; ``report``:
    takes what a part has found so far, and it counts if the part is ended before it returns."""

    device: str
    tiny: bool
    scratch: Path
    keep: Path
    until: float = math.inf
    report: Callable[[Outcome], None] = lambda outcome: None


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """``said``: the part's row of the table; ``figures``: the same for a program; ``rows``: lines of a table of its own.

    ``status``: ``done``, ``failed`` (a check did not hold), or ``not run`` (something that it needs is not installed).
    """

    said: str
    figures: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, Any]] = field(default_factory=list)
    status: str = "done"

    def as_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self)
