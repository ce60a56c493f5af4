"""Observers and trackers of a run: told of everything, able to stop nothing. One that raises is reported once and switched off."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType

from rlcore.config import Plan
from rlcore.contracts.interfaces import RunInfo, Tracker
from rlcore.contracts.specs import PluginKind
from rlcore.runtime.progress import Progress

__all__ = ["Listeners"]


class Listeners:
    """A context: opened when the run starts, closed when it ends. What only ``observers`` hear of is said to them; what trackers hear of,
    too, is said here."""

    def __init__(self, plan: Plan, folder: Path, progress: Progress) -> None:
        self._plan = plan
        self._run = RunInfo(folder=folder, config=plan.config.plain())
        self._tell = progress.note
        self.observers = plan.registry.observers(progress.note)
        self._trackers: dict[str, Tracker] = {}
        self._off: dict[str, str] = {}

    @property
    def switched_off(self) -> dict[str, str]:
        """Who was switched off, and why."""
        return {**self.observers.switched_off, **self._off}

    def __enter__(self) -> Listeners:
        for name, options in zip(self._plan.config.log.trackers, self._plan.tracker_options, strict=True):
            try:
                self._trackers[name] = self._plan.registry.make(PluginKind.TRACKER, name, options=options)
            except (Exception, SystemExit) as error:  # a tracker is a stranger: whatever it raises must not end the run
                self._switch_off(name, error)
        self._each(lambda tracker: tracker.open(self._run))
        self.observers.run_started(self._run)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.observers.run_finished({"error": f"{type(error).__name__}: {error}"})
        self.close_trackers()

    def close_trackers(self) -> None:
        """Close those that are still on; a second call finds none. Before the summary, which names the one that raises here."""
        self._each(lambda tracker: tracker.close())
        self._trackers.clear()

    def step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """An update was completed."""
        self._each(lambda tracker: tracker.log({"step": step, **metrics}))
        self.observers.step_finished(step, metrics)

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Held-out figures, for the trackers."""
        self._each(lambda tracker: tracker.log({"step": step, **figures}))

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except (Exception, SystemExit) as error:  # as above
                del self._trackers[name]
                self._switch_off(name, error)

    def _switch_off(self, name: str, error: BaseException) -> None:
        self._off[name] = " ".join(f"{type(error).__name__}: {error}".split())
        self._tell(f"tracker {name} is switched off for the rest of the run: {self._off[name]}")
