"""The information that observers and trackers receive when a run starts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rlcore.contracts.public_members import PublicMembers

__all__ = ["RunInfo"]


def _unheard(text: str) -> None:
    """Ignore the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo(metaclass=PublicMembers):
    """The information that observers and trackers receive when a run starts."""

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    """Updates that were made before. A resumed run keeps its folder and counts from here."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """The content of manifest.json: versions, the plugins with the hashes of their code, seed, data."""
    note: Callable[[str], object] = field(default=_unheard, compare=False, repr=False)
    """Shows one line to the user, such as the address of the figures. A tracker may call it until the tracker is closed."""

    def records(self) -> Iterator[dict[str, Any]]:
        """Yield the logged records of the steps up to ``step`` from metrics.jsonl, so that a tracker of a resumed run can begin with them.

        A figure that was not a finite number is NaN.
        """
        path = self.folder / "metrics.jsonl"
        with path.open(encoding="utf-8") if self.step and path.exists() else nullcontext(()) as lines:
            for line in lines:
                record = json.loads(line)
                if record["step"] <= self.step:
                    yield {name: math.nan if value is None else value for name, value in record.items()}
