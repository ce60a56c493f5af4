"""Observers and trackers of a run. They are notified of everything and cannot stop the run. One that raises is reported once and switched
off."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any

import pluggy

from rlcore.config import Plan
from rlcore.contracts.interfaces import RunInfo, Tracker
from rlcore.contracts.specs import PluginKind
from rlcore.contracts.types import Group
from rlcore.host.terminal_text import escape_control
from rlcore.registry.error_context import reason, stdout_to_stderr
from rlcore.runtime.factories import first_version

__all__ = ["Listeners"]

_Observer = tuple[str, pluggy.PluginManager]
"""The distribution of an observer, and its hooks."""


class Listeners:
    """A context that is entered when the run starts and left when it ends. Each plugin is called separately, with read-only arguments.

    ``switched_off`` holds the reason for every plugin that raised; ``tell`` receives it once as a sentence when it happens. ``warnings``
    holds the observers' warnings about updates, which ``tell`` receives too."""

    def __init__(self, plan: Plan, folder: Path, tell: Callable[[str], None], manifest: Mapping[str, Any] = MappingProxyType({})) -> None:
        self._plan = plan
        self._run = RunInfo(folder=folder, config=plan.config.plain(), step=first_version(plan), manifest=manifest, note=tell)
        self._tell = tell
        self._observers = plan.registry.hooks()
        self._trackers: dict[str, Tracker] = {}
        self.switched_off: dict[str, str] = {}
        self.warnings: list[str] = []

    def __enter__(self) -> Listeners:
        for name, options in zip(self._plan.config.log.trackers, self._plan.tracker_options, strict=True):
            try:
                self._trackers[name] = self._plan.registry.make(PluginKind.TRACKER, name, options=options)
            except (Exception, SystemExit) as error:  # a tracker is third-party code: its exceptions must not end the run
                self._switch_off(name, error)
        self._each(lambda tracker: tracker.open(self._run))
        self._observe("rlcore_run_started", run=self._run)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self.run_finished({"error": f"{type(error).__name__}: {error}"})
        self.close_trackers()

    def close_trackers(self) -> None:
        """Close the trackers that are still on. A second call finds none. Called before the summary, which names a tracker that raises
        here."""
        self._each(lambda tracker: tracker.close())
        self._trackers.clear()

    def groups_scored(self, groups: Sequence[Group], version: int) -> None:
        """Report groups that were scored while ``version`` was the policy."""
        self._observe("rlcore_groups_scored", groups=tuple(groups), version=version)

    def step_finished(self, step: int, metrics: Mapping[str, float]) -> None:
        """Report that update ``step`` (from 1) is complete and published."""
        self._each(lambda tracker: tracker.log({"step": step, **metrics}))
        given = MappingProxyType(dict(metrics))
        self._observe("rlcore_step_finished", step=step, metrics=given)
        for observer, answers in self._observe("rlcore_note_step", step=step, metrics=given):
            self._warn(observer, step, answers)

    def evaluated(self, step: int, figures: Mapping[str, float]) -> None:
        """Send held-out figures to the trackers."""
        self._each(lambda tracker: tracker.log({"step": step, **figures}))

    def checkpoint_saved(self, step: int, folder: Path) -> None:
        """Report that a checkpoint is completely written."""
        self._observe("rlcore_checkpoint_saved", step=step, folder=folder)

    def run_timed(self, rows: Sequence[tuple[str, str, str, float, float]]) -> None:
        """Report how the time of the run was spent, as ``Timing.rows`` returns it."""
        self._observe("rlcore_run_timed", folder=self._run.folder, rows=tuple(rows))

    def run_finished(self, summary: Mapping[str, Any]) -> None:
        """Report that the run ended, successfully or not."""
        self._observe("rlcore_run_finished", summary=MappingProxyType(dict(summary)))

    def _observe(self, hook: str, **given: Any) -> list[tuple[_Observer, list[Any]]]:
        """Call a hook of every observer. Return the answers of each."""
        answers = []
        for observer in list(self._observers):
            try:
                with stdout_to_stderr():
                    answers.append((observer, getattr(observer[1].hook, hook)(**given)))
            except (Exception, SystemExit) as error:
                self._drop(observer, f"{hook} raised {reason(error)}")
        return answers

    def _warn(self, observer: _Observer, step: int, answers: list[Any]) -> None:
        strange = [one for one in answers if not isinstance(one, list | tuple) or not all(isinstance(item, str) for item in one)]
        if strange:
            found = type(strange[0]).__name__ if not isinstance(strange[0], list | tuple) else "items that are not text"
            self._drop(observer, f"rlcore_note_step returned {found}, it must return a list of sentences")
            return
        for sentence in (sentence for answer in answers for sentence in answer):
            self.warnings.append(f"after update {step}: {escape_control(sentence)}")
            self._tell(f"warning: {self.warnings[-1]}")

    def _drop(self, observer: _Observer, problem: str) -> None:
        self._observers.remove(observer)
        owner = observer[0]
        self.switched_off[owner] = problem = escape_control(problem)
        self._tell(f"warning: observer {owner} is switched off for the rest of the run: {problem}")

    def _each(self, call: Callable[[Tracker], None]) -> None:
        for name, tracker in list(self._trackers.items()):
            try:
                call(tracker)
            except (Exception, SystemExit) as error:  # see __enter__
                del self._trackers[name]
                self._switch_off(name, error)

    def _switch_off(self, name: str, error: BaseException) -> None:
        self.switched_off[name] = escape_control(" ".join(f"{type(error).__name__}: {error}".split()))
        self._tell(f"warning: tracker {name} is switched off for the rest of the run: {self.switched_off[name]}")
