"""The output of a run: its progress, which a display implements, and the summary at its end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from textwrap import shorten
from typing import TYPE_CHECKING, Any

from rlcore.config.python_words import in_python
from rlcore.host.terminal_text import escape_control
from rlcore.runlog.best_checkpoint import BestFigure

if TYPE_CHECKING:
    from rlcore.contracts.runtime_interface import TaskReport

__all__ = ["Progress", "Sample", "Summary", "counting", "samples_of"]

_LONGEST = 900
"""Characters of a summary as text."""


class Progress:
    """A progress that shows nothing; a display overrides the methods that it needs. Called only from the driver's main thread."""

    def started(self, folder: Path, total_steps: int) -> None:
        """Report that the run folder exists and that ``total_steps`` updates are planned."""

    def note(self, text: str) -> None:
        """Report one line for the user."""

    def __call__(self, text: str) -> None:
        """Do ``note``: a progress is passed as the ``say`` of functions that report lines, and slow work (``counting``)."""
        self.note(text)

    def working(self, work: str, done: int, total: int) -> None:
        """Report how much of slow work before the first update is done. It begins with 0 and ends with ``total``."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report that an update is complete."""

    def evaluated(self, step: int, reports: Sequence[TaskReport]) -> None:
        """Report an evaluation of the held-out tasks with the weights after ``step`` updates."""

    def finished(self) -> None:
        """Report the end. No further call follows."""


def counting(say: Callable[[str], None], work: str, total: int) -> Callable[[int], None]:
    """Return a function that reports how much of the work is done; it reports nothing if ``say`` only receives lines."""
    if not isinstance(say, Progress) or not total:
        return lambda done: None
    say.working(work, 0, total)
    return lambda done: say.working(work, done, total)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """The answer to one held-out prompt, before and after training."""

    prompt: str
    gold: str
    before: str
    after: str


def samples_of(before: Sequence[TaskReport], after: Sequence[TaskReport]) -> tuple[Sample, ...]:
    """Return samples of the first held-out prompts of the first task, preferring prompts whose verdict changed."""
    if not before or not after:
        return ()
    first_answers = ([row for row in reports[0].rows if row["index"] == 0] for reports in (before, after))
    pairs = list(zip(*first_answers, strict=True))
    changed = [pair for pair in pairs if pair[0]["ans_valid"] != pair[1]["ans_valid"]]
    return tuple(
        Sample(prompt=first["prompt"][-1]["content"], gold=str(first["gold"]), before=_answer(first), after=_answer(last))
        for first, last in (changed or pairs)[:3]
    )


def _answer(row: Mapping[str, Any]) -> str:
    """Return the answer to the prompt; of an episode with several answers the last one, with their number."""
    count = sum(turn["policy"] for turn in row.get("turns", ()))
    return f"(the last of {count} answers) {row['prediction']}" if count > 1 else str(row["prediction"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """Figures of a run. For a resumed run, seconds, tokens per second and memory are those of its last part.

    Accuracies are means over the held-out tasks, None without one. ``best`` is the best value of ``log.best_by`` and the number of updates
    before it; of equal values, the latest. ``train_seconds`` is wall-clock time of training, evaluations between steps included. ``ledger``
    counts prompts by outcome: trained, filtered or failed; ``sources`` has the same for each of several sources. ``time`` is seconds by
    part, summed over workers. ``shares`` is the share of time by activity (``rlcore.runtime.timing.Timing.shares``), empty if nothing was
    trained. ``filter`` holds the figures of the group
    filter and the number of updates that it starved, empty without a filter. ``dropped`` counts prompts that were too long, by data set.
    ``bad_rows`` counts the rows that were left out because they are bad, by data set and reason.
    ``remarks`` are sentences for the user. ``max_staleness`` and ``reproducible`` (``bitwise`` or ``seeded``) are the run's values.
    ``train_on`` holds the flags for ``rlcore resume`` that double the length of the run, or leave out the controllers that ended it.
    ``stopped`` is the reason why controllers ended the run, "" if none did. ``objects`` names the kinds of plugins that were objects of a
    Python program (``reward``), which a resumed run needs again.

    ``peak_memory`` is the peak in bytes by process, since its start: the driver, and the workers that have their own process.
    ``peak_memory_bytes`` is their sum; memory that two of them map counts twice. Processes that engines, rewards and sandboxes start are
    not included.
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
    stopped: str = ""
    switched_off: Mapping[str, str] = field(default_factory=dict)
    filter: Mapping[str, float] = field(default_factory=dict)
    dropped: Mapping[str, int] = field(default_factory=dict)
    bad_rows: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    sources: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    checkpoint: Path | None = None
    samples: tuple[Sample, ...] = ()
    max_staleness: int = 0
    reproducible: str = ""
    train_on: str = ""
    objects: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Any]:
        """Return a JSON-serializable dict, with paths as text."""
        return {**asdict(self), "run": str(self.run), "checkpoint": str(self.checkpoint) if self.checkpoint else None}

    def accuracy_text(self) -> str:
        """Return the held-out accuracies, "" without them."""
        if self.accuracy_before is None or self.accuracy_after is None:
            return ""
        return f"{self.accuracy_before:.3f} before, {self.accuracy_after:.3f} after"

    def pace_text(self) -> str:
        """Return updates, seconds and tokens per second."""
        return f"{self.steps} updates, {self.train_seconds:.1f} s, {self.tokens_per_second:.0f} tokens/s"

    def __repr__(self) -> str:
        text = "\n".join(f"{name:<20}{text}" for name, text in self._lines())
        return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 2]} …"

    def _repr_html_(self) -> str:
        """Return a table for notebooks."""
        left = ' style="text-align: left"'
        rows = (f"<tr><th{left}>{escape(name)}</th><td{left}>{escape(text)}</td></tr>" for name, text in self._lines())
        return f"<table>{''.join(rows)}</table>"

    def _lines(self) -> Iterator[tuple[str, str]]:
        """Yield at most ten names with their texts. Remarks come last, because a text that is too long is cut."""
        again = "".join(f", {kind}=…" for kind in self.objects)
        best = self.best
        more = "" if self.interrupted else in_python(f" {self.train_on}", {}).replace(" ", ", ")
        shown = {
            "run": "stopped early, and saved" if self.interrupted else f"stopped by {self.stopped}" if self.stopped else "done",
            "training": self.pace_text(),
            "held-out accuracy": self.accuracy_text(),
            "best evaluation": "" if best is None else f"{best.name} {best.value:.3f} after {best.step} updates",
            "last reward": "" if self.reward_last is None else f"{self.reward_last:.3f}",
            "run folder": f"{self.run}",
            "checkpoint": f"{self.checkpoint or 'none'}",
            "to resume" if self.interrupted else "to train further": f"rlcore.train(resume={str(self.run)!r}{again}{more})"
            if self.checkpoint
            else "",
        }
        yield from ((name, escape_control(text)) for name, text in shown.items() if text)
        remarks = [*self.remarks, *(f"{name} is switched off: {reason}" for name, reason in self.switched_off.items())]
        yield from (("note", escape_control(shorten(remark, 120, placeholder=" …"))) for remark in remarks[:2])
        if len(remarks) > 2:
            yield "", f"and {len(remarks) - 2} more, in remarks and switched_off"
