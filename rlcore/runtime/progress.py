"""What a run tells whoever watches it. A display implements this; the run works the same without one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol

from rlcore.roles.evaluator import TaskReport

__all__ = ["Progress", "Silent"]


class Progress(Protocol):
    """Called from the driver's main thread only."""

    def started(self, folder: Path, total_steps: int) -> None:
        """The run folder exists; so many updates are planned."""

    def note(self, text: str) -> None:
        """One line that a person should read."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """An update was completed."""

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """Held-out tasks were evaluated with the weights after ``step`` updates."""

    def finished(self) -> None:
        """No further call follows."""


class Silent:
    """Watches nothing."""

    def started(self, folder: Path, total_steps: int) -> None: ...

    def note(self, text: str) -> None: ...

    def step(self, step: int, metrics: Mapping[str, float]) -> None: ...

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None: ...

    def finished(self) -> None: ...
