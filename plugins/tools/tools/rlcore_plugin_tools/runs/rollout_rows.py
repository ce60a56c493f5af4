"""Rows of a run's rollouts or evaluations, one update after the other; memory never holds more than one update."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rlcore.api import UsageError
from rlcore.api.settings import closest
from rlcore_plugin_tools.chat_turns import chat_turns
from rlcore_plugin_tools.run_record import RunRecord, as_rollout

__all__ = ["RolloutFilter", "RolloutSource", "found_in", "plain_text", "rollout_source"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutFilter:
    """Conditions on a row; all that are given must hold. A row without a reward is not within bounds."""

    min_reward: float | None = None
    max_reward: float | None = None
    outcome: str | None = None
    search: str | None = None
    prompt: str | None = None

    def takes(self, row: Mapping[str, Any]) -> bool:
        """Return whether the row meets the conditions."""
        return (
            self._bounds(row.get("reward"))
            and (self.outcome is None or row.get("outcome") == self.outcome)
            and (self.prompt is None or row.get("prompt_id") == self.prompt)
            and (self.search is None or found_in(row, self.search))
        )

    def _bounds(self, reward: object) -> bool:
        if self.min_reward is None and self.max_reward is None:
            return True
        low, high = -math.inf if self.min_reward is None else self.min_reward, math.inf if self.max_reward is None else self.max_reward
        return isinstance(reward, int | float) and low <= reward <= high


def found_in(row: Mapping[str, Any], words: str) -> bool:
    """Return whether one of its texts contains the words, in any case."""
    wanted = words.casefold()
    return any(wanted in text.casefold() for text in _texts_of(row))


def _texts_of(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the texts that a search reads: prompt, answer, gold, the parsed answer, the reason, and the messages of a conversation."""
    prompt = row.get("prompt")
    for message in prompt if isinstance(prompt, list) else [prompt]:
        yield plain_text(message.get("content") if isinstance(message, Mapping) else message)
    for name in ("text", "gold", "parsed", "reason"):
        yield plain_text(row.get(name))
    for turn in chat_turns(row):
        yield "".join(text for text, _ in turn.pieces)
        yield from (text for call in turn.calls for text in call)


def plain_text(value: object) -> str:
    """Return text unchanged and anything else as JSON; "" for None."""
    return "" if value is None else value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


class RolloutSource:
    """The rows of some steps, in order. Rows of an evaluation have the field names of training's, and ``task`` in addition."""

    def __init__(self, record: RunRecord, steps: Sequence[int], task: str | None = None) -> None:
        self._record = record
        self.steps = tuple(steps)
        self._task = task

    def of(self, step: int) -> Iterator[dict[str, Any]]:
        """Yield the rows of one step."""
        if self._task is None:
            for row in self._record.rollouts(step):
                yield {"step": step, **row}
        else:
            for row in self._record.evaluation_rows(self._task, step):
                yield {"step": step, "task": self._task, **as_rollout(row)}

    def matching(self, wanted: RolloutFilter) -> Iterator[dict[str, Any]]:
        """Yield all rows that the filter accepts."""
        return (row for step in self.steps for row in self.of(step) if wanted.takes(row))


def rollout_source(record: RunRecord, step: int | None, task: str | None) -> RolloutSource:
    """Return the rows of a run. ``step`` None: every step that is there. UsageError if there is no such task or step, or none at all."""
    if task is not None and task not in record.tasks():
        known = record.tasks()
        raise UsageError(f"{record.root} has no answers to a task {task}{closest(task, known)}; it has {', '.join(known) or 'none'}")
    steps = record.rollout_steps() if task is None else record.evaluated_steps(task)
    what = "rollouts" if task is None else f"answers to {task}"
    if not steps:
        raise UsageError(f"{record.root} has no {what}: it ended before the first, or log.rollout_interval is 0")
    if step is not None and step not in steps:
        raise UsageError(f"{record.root} has no {what} of step {step}; it has those of {_spans(steps)}")
    return RolloutSource(record, steps if step is None else [step], task)


def _spans(steps: Sequence[int]) -> str:
    """Return ``1, 2, 5``; of many, the number, the first and the last."""
    return ", ".join(map(str, steps)) if len(steps) <= 10 else f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
