"""What observers and trackers learn of a run when it starts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["RunInfo"]


def _unheard(text: str) -> None:
    """Nobody listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """What observers and trackers learn of a run when it starts."""

    folder: Path
    config: Mapping[str, Any] = field(default_factory=dict)
    step: int = 0
    """Updates that were made before: a run that goes on keeps its folder, and counts from here."""
    manifest: Mapping[str, Any] = field(default_factory=dict)
    """What manifest.json holds: versions, the plugins with the hashes of their code, seed, data."""
    note: Callable[[str], object] = field(default=_unheard, compare=False, repr=False)
    """Shows the user one line, such as where the figures can be seen; a tracker may call it until it is closed."""

    def records(self) -> Iterator[dict[str, Any]]:
        """The records of the steps up to ``step``, as they were logged, from metrics.jsonl: what a tracker of a run that goes on may begin
        with. A figure that was no finite number is NaN."""
        path = self.folder / "metrics.jsonl"
        with path.open(encoding="utf-8") if self.step and path.exists() else nullcontext(()) as lines:
            for line in lines:
                record = json.loads(line)
                if record["step"] <= self.step:
                    yield {name: math.nan if value is None else value for name, value in record.items()}
