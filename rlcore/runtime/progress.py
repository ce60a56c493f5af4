"""What a run tells whoever watches it: its progress, which a display implements, and at its end the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rlcore.runlog.best_checkpoint import BestFigure

if TYPE_CHECKING:
    from rlcore.contracts.runtime_interface import TaskReport

__all__ = ["Progress", "Sample", "Summary"]


class Progress:
    """Watches nothing; a display overrides what it shows. Called from the driver's main thread only."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One held-out prompt, before and after."""

    prompt: str
    gold: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures of a run; of one that went on, seconds, tokens a second and memory are those of its last part. Accuracies are means over the
    held-out tasks, None without one; ``best`` is the best value of what ``log.best_by`` names, and after how many updates that was, the
    latest of equals; seconds are wall clock of training, evaluations between steps included; ``ledger`` counts prompts by what became of
    them; ``time`` is seconds by part, summed over workers; ``shares`` is what share of the time went where
    (``rlcore.runtime.timing.Timing.shares``), empty where nothing was trained; ``filter`` is what the group filter saw and how many updates
    it starved, empty without one; ``dropped`` counts prompts that were too long, by data set; ``remarks`` are sentences that a person
    should read; ``max_staleness`` and ``reproducible`` (``bitwise`` or ``seeded``) are what the run had; ``train_on`` is what ``rlcore
    resume`` takes to make the run twice as long. ``peak_memory``: bytes at their most by process, the driver and the workers that have one
    of their own, from its start; ``peak_memory_bytes`` is their sum, in which memory that two of them map counts twice. Processes that
    engines, rewards and sandboxes start for themselves are not in it.
    """

    run: Path
    steps: int
    train_seconds: float
    tokens_per_second: float
    accuracy_before: float | None
    accuracy_after: float | None
    reward_last: float | None
    ledger: Mapping[str, int]
    time: Mapping[str, float]
    peak_memory_bytes: int
    peak_memory: Mapping[str, int] = field(default_factory=dict)
    shares: Mapping[str, float] = field(default_factory=dict)
    best: BestFigure | None = None
    interrupted: bool = False
    switched_off: Mapping[str, str] = field(default_factory=dict)
    filter: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    checkpoint: Path | None = None
    samples: tuple[Sample, ...] = ()
    max_staleness: int = 0
    reproducible: str = ""
    train_on: str = ""

    def as_json(self) -> dict[str, Any]:
        """A JSON-able dict, paths as text."""
        return {**asdict(self), "run": str(self.run), "checkpoint": str(self.checkpoint) if self.checkpoint else None}
