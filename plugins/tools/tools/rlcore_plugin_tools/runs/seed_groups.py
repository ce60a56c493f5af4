"""Runs that differ only in their seed form one group: one column of a comparison."""

from __future__ import annotations

import string
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from rlcore_plugin_tools.run_record import RunRecord
from rlcore_plugin_tools.runs.evaluation_record import EvaluationRecord
from rlcore_plugin_tools.runs.metric_lines import evaluated_tasks, progress
from rlcore_plugin_tools.settings_compared import SEED, flat_settings, groups_by_seed

__all__ = ["ComparedRun", "SeedGroup", "seed_groups"]


class ComparedRun:
    """A run, each of whose files is read once; or an evaluation."""

    def __init__(self, record: RunRecord | EvaluationRecord) -> None:
        self.record = record
        self.state = record.state
        self.updates = record.updates()
        self.step, self.seconds = (record.step, record.seconds) if isinstance(record, EvaluationRecord) else progress(self.updates)
        self.evaluations = record.evaluations()
        self.settings: Mapping[str, Any] = flat_settings(record.config)
        self.tasks = evaluated_tasks(record.config, self.evaluations)

    @property
    def trained(self) -> bool:
        """Whether it is a run."""
        return isinstance(self.record, RunRecord)

    @property
    def seed(self) -> int | None:
        """The seed in its settings."""
        return self.settings.get(SEED)

    @cached_property
    def manifest(self) -> Mapping[str, Any]:
        """The manifest, with the changes of the last part if the run was resumed."""
        manifest = self.record.manifest
        return {**manifest, **{key: value for part in manifest.get("resumes", ()) for key, value in part.items() if key in manifest}}


@dataclass(frozen=True, slots=True)
class SeedGroup:
    """One column. ``label``: A, B … of the column."""

    label: str
    runs: tuple[ComparedRun, ...]


def seed_groups(runs: Sequence[ComparedRun]) -> list[SeedGroup]:
    """Return groups in the order of their first runs. If there are only two runs and they differ only in their seed, they are compared
    instead of averaged."""
    kinds = groups_by_seed([run.settings for run in runs]) if len(runs) > 2 else [[place] for place in range(len(runs))]
    return [SeedGroup(_label(number), tuple(runs[place] for place in places)) for number, places in enumerate(kinds)]


def _label(place: int) -> str:
    letters = string.ascii_uppercase
    return letters[place] if place < len(letters) else f"{letters[place // len(letters) - 1]}{letters[place % len(letters)]}"
